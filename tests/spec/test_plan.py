"""From an experiment to a plan: ranks, hosts, threads."""

import pytest

from graphmill.base.errors import UserError
from graphmill.spec.kinds.node_classification import GraphInfo, NodeClassificationExperiment, SampledTrainSpec
from graphmill.spec.plan import MachineInfo, resolve

GRAPH = GraphInfo(
    name="g",
    path="/data/g",
    checksum="0",
    synthetic=True,
    num_nodes=100,
    num_edges=400,
    num_features=4,
    num_classes=3,
    num_train=60,
    has_sparse_features=False,
)


def plan(*, hosts=1, num_cores=8, num_gpus=0, memory_mib=None, **train):
    experiment = NodeClassificationExperiment(train=SampledTrainSpec(epochs=1, batch_size=5, **train))
    machine = MachineInfo(num_cores=num_cores, num_gpus=num_gpus, memory_mib=memory_mib)
    return resolve(experiment, machine=machine, dataset=GRAPH, run_id="r", hosts=hosts)


@pytest.mark.parametrize(
    ("hosts", "num_gpus", "asked", "ranks", "threads"),
    [
        (1, 0, "auto", 1, 8),
        (1, 0, 4, 4, 2),
        (2, 0, "auto", 2, 8),
        (2, 0, 8, 8, 2),
        (2, 4, "auto", 8, 2),
        (3, 4, 6, 6, 4),
    ],
)
def test_ranks_and_threads_are_counted_per_host(hosts, num_gpus, asked, ranks, threads):
    made = plan(hosts=hosts, num_gpus=num_gpus, ranks=asked)
    assert (made.ranks, made.ranks_per_host, made.threads) == (ranks, ranks // hosts, threads)


def test_more_ranks_than_the_memory_holds_are_refused():
    """A thousand ranks on a laptop would end in the system killing what it likes."""
    with pytest.raises(UserError, match=r"(?s)1000 ranks on one machine need 146 GiB.*it has 24 GiB.*train\.ranks.*8"):
        plan(ranks=1000, memory_mib=24 * 1024)
    assert plan(ranks=100, memory_mib=24 * 1024).ranks == 100
    assert plan(hosts=10, ranks=1000, memory_mib=24 * 1024).ranks == 1000


def test_ranks_that_do_not_divide_among_the_hosts_are_refused():
    with pytest.raises(UserError, match=r"(?s)3 ranks do not divide among 2 hosts.*train\.ranks=4"):
        plan(hosts=2, ranks=3)


def test_more_ranks_than_the_hosts_have_gpus_are_refused():
    with pytest.raises(UserError, match=r"(?s)2 hosts have 2 each.*train\.ranks=4"):
        plan(hosts=2, num_gpus=2, ranks=6, device="cuda")
