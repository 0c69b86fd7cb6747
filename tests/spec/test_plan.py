"""From an experiment to a plan: ranks, hosts, threads."""

import pytest

from graphmill.base.errors import UserError
from graphmill.spec.kinds import find_kind
from graphmill.spec.load import inline_experiment
from graphmill.spec.modelled import modelled
from graphmill.spec.node_models import NodeCustomModelSpec
from graphmill.spec.plan import MachineInfo, refuse_unfit_for_roles, resolve
from graphmill.spec.roles import RolesSpec
from graphmill.tasks.node_classification.page import GraphInfo, NodeClassificationExperiment, SampledTrainSpec

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


def plan(*, hosts=1, num_cores=8, num_gpus=0, memory_mib=None, roles=None, **train):
    experiment = NodeClassificationExperiment(
        roles=None if roles is None else RolesSpec(samplers=roles[0], trainers=roles[1]),
        train=SampledTrainSpec(**{"epochs": 1, "batch_size": 5, **train}),
    )
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


@pytest.mark.parametrize(
    ("roles", "hosts", "each", "ranks_here", "threads"),
    [
        ((1, 2), 1, 3, 2, 2),  # cores of a host are shared out among its processes, whatever they do
        ((2, 4), 2, 3, 2, 2),
        ((2, 4), 3, 2, 2, 4),  # two hosts that train, and one that samples
        ((1, 1), 2, 1, 1, 8),
    ],
)
def test_processes_of_both_roles_share_a_host(roles, hosts, each, ranks_here, threads):
    made = plan(roles=roles, hosts=hosts)
    assert (made.ranks, made.world.samplers, made.world.processes_per_host) == (roles[1], roles[0], each)
    assert (made.ranks_per_host, made.threads) == (ranks_here, threads)
    assert made.batches == plan(ranks=roles[1], hosts=hosts if roles[1] % hosts == 0 else 1).batches


def test_only_those_that_train_need_a_gpu():
    assert plan(roles=(2, 4), hosts=2, num_gpus=2, device="cuda").ranks_per_host == 2
    with pytest.raises(UserError, match=r"(?s)4 trainers want a GPU each, but this machine has 2.*roles\.trainers=2"):
        plan(roles=(1, 4), num_gpus=2, device="cuda")


def test_samplers_need_memory_as_ranks_do():
    assert plan(roles=(1, 2), memory_mib=500).ranks == 2
    with pytest.raises(UserError, match=r"(?s)4 trainers and samplers on one machine need.*roles\.trainers"):
        plan(roles=(2, 2), memory_mib=500)
    whole, served = (modelled(plan(**asked)) for asked in ({"ranks": 2}, {"roles": (1, 2)}))
    assert whole.memory_per_sampler_mib is None
    assert served.memory_per_sampler_mib > 350  # an interpreter with torch, and batches for two
    assert served.num_syncs == whole.num_syncs
    of_one = modelled(plan(roles=(2, 2), num_cores=8))
    of_one_more = served.memory_per_sampler_mib - of_one.memory_per_sampler_mib
    assert of_one_more == pytest.approx(served.memory.batches_mib), "it holds the batches of each rank that it serves"


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"presampled": "sampled"}, r"train\.presampled and roles are both set"),
        ({"batch_size": "auto"}, "the size of a batch is to be found"),
        ({"ranks": 4}, r"train\.ranks is 4, but roles\.trainers is 2"),
        ({"hosts": 3}, "2 trainers and 2 samplers do not fit 3 hosts"),
    ],
)
def test_what_does_not_go_with_roles_is_refused(asked, says):
    with pytest.raises(UserError, match=says):
        plan(roles=(2, 2), **asked)


def test_a_task_that_samples_nothing_has_no_samplers():
    experiment = inline_experiment(
        {"task": {"kind": "traffic"}, "roles": {"samplers": 1, "trainers": 2}, "train": {"epochs": 1}}, "the test"
    )
    with pytest.raises(UserError, match="roles: traffic has no sampling service") as refused:
        refuse_unfit_for_roles(experiment, find_kind("traffic"))
    assert refused.value.fix == "leave roles out, and set train.ranks=2"


@pytest.mark.parametrize(
    ("train", "fix"),
    [
        ({"precision": "bf16"}, "set train.precision=fp32, or model.fused=false"),
        ({"device": "cuda"}, "set train.device=cpu, or model.fused=false"),
    ],
)
def test_fused_layers_are_of_cpus_in_fp32(train, fix):
    model = NodeCustomModelSpec(kind="custom", target="torch_geometric.nn.GCN", fused=True)
    machine = MachineInfo(num_cores=2, num_gpus=1)

    def planned(**more):
        settings = SampledTrainSpec(**{"epochs": 1, "batch_size": 5, "device": "cpu", **more})
        experiment = NodeClassificationExperiment(model=model, train=settings)
        return resolve(experiment, machine=machine, dataset=GRAPH, run_id="r")

    assert planned().task.model.fused
    with pytest.raises(UserError, match="its layers compute on CPUs in fp32") as refused:
        planned(**train)
    assert refused.value.fix == fix


@pytest.mark.parametrize(
    ("optimizer", "expected"),
    [
        ({"kind": "adam"}, 0.005),
        ({"kind": "sgd"}, 0.005),
        ({"kind": "adamw"}, 0.01),
        ({"kind": "adamw", "weight_decay": None}, 0.005),
        ({"kind": "adam", "weight_decay": 0.0}, 0.0),
        ({"kind": "adam", "weight_decay": 0.5}, 0.5),
    ],
)
def test_weights_decay_by_the_number_of_training_nodes_where_nobody_says(optimizer, expected):
    assert plan(optimizer=optimizer).optimizer.weight_decay == expected
