"""The sampled neighbourhoods of a plan's epochs, made before the run and read in it. Nothing here needs torch."""

from pathlib import Path

from graphmill.graph.keys import drawn
from graphmill.sample.neighbor import NeighborSampler
from graphmill.sample.presampled.packing import Form
from graphmill.sample.presampled.schedule import EpochSource, PresampledSampler, ScheduleIdentity, refuse_other
from graphmill.sample.schedule import SeedSchedule
from graphmill.spec.kinds.node_classification import GraphSageSpec, NodeClassificationPlan
from graphmill.spec.plan import Plan
from graphmill.tasks.node_classification.store import LabelledGraphStore


def epoch_source(plan: Plan) -> EpochSource:
    """How the epochs of a plan are sampled; `UserError` if its data are not prepared."""
    own = plan.task
    own.dataset.prepared_checksum  # noqa: B018  # raises where there is none
    return source_over(plan, LabelledGraphStore.open(Path(own.dataset.path)))


def source_over(plan: Plan, store: LabelledGraphStore) -> EpochSource:
    """The same over data that are open."""
    own = plan.task
    assert isinstance(own, NodeClassificationPlan)
    resample, with_edge_ids = isinstance(own.model, GraphSageSpec), bool(own.edge_columns)
    topology = store.topology(undirected=own.undirected)
    train_ids = drawn(store.nodes_in("train"), own.dataset.num_train, plan.seed)
    identity = ScheduleIdentity(
        data=store.metadata.checksum,
        num_train=len(train_ids),
        undirected=own.undirected,
        seed=plan.seed,
        num_neighbors=own.num_neighbors,
        batch_size=plan.batch_size,
        ranks=plan.ranks,
        seeds="equal",
        resample=resample,
        edge_ids=with_edge_ids,
    )
    return EpochSource(
        identity=identity,
        form=Form.of(topology, own.num_neighbors, resample=resample, with_edge_ids=with_edge_ids),
        num_steps=plan.batches.num_steps,
        schedule=SeedSchedule.equal(train_ids, plan.batches, plan.seed),
        sampler=lambda: NeighborSampler(
            topology, own.num_neighbors, plan.seed, plan.threads, resample=resample, with_edge_ids=with_edge_ids
        ),
    )


def presampled(plan: Plan, store: LabelledGraphStore, path: Path, rank: int) -> PresampledSampler:
    """What a rank reads in place of sampling. `UserError` if the folder is another run's."""
    folder = source_over(plan, store).folder(path)
    refuse_other(folder.path, folder.identity)
    return PresampledSampler(folder, rank)
