"""Node classification as the loop sees it: batches, a loss, measures."""

import time
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from graphmill.graph.batch import EvaluationSeeds, MiniBatch, SeedIds
from graphmill.graph.features import Features, SparseFeatures
from graphmill.nn.graphsage import GraphSage
from graphmill.sample.collect import Collector
from graphmill.sample.feed import feed, to_device
from graphmill.sample.neighbor import NeighborSampler
from graphmill.sample.prefetch import prefetch
from graphmill.sample.schedule import SeedSchedule, drawn
from graphmill.spec.kinds.node_classification import FeatureTransform, GraphInfo, NodeClassificationPlan
from graphmill.spec.plan import Plan
from graphmill.sync.group import Group
from graphmill.tasks.node_classification.inference import LayerwiseInference
from graphmill.tasks.node_classification.metrics import measures, tally
from graphmill.tasks.node_classification.model import DTYPE_OF, EdgeIndexModel, build_model
from graphmill.tasks.node_classification.store import LabelledGraphStore
from graphmill.tasks.same_data import refuse_other_data
from graphmill.tasks.task import LoaderTimes, Measures, Pause, Split, never_pause

_EVALUATION_BATCH = 512  # seeds whose whole neighbourhood is in memory together, for models that are not layer-wise


@dataclass(slots=True)
class NodeClassification:
    """One rank's share of the problem that a plan describes."""

    plan: Plan
    own: NodeClassificationPlan
    group: Group
    times: LoaderTimes = field(default_factory=LoaderTimes)
    model: GraphSage | EdgeIndexModel = field(init=False)
    schedule: SeedSchedule = field(init=False)
    store: LabelledGraphStore = field(init=False)
    features: Features = field(init=False)
    labels: Tensor = field(init=False)
    sampler: NeighborSampler = field(init=False)
    collector: Collector = field(init=False)

    def __post_init__(self) -> None:
        plan, own = self.plan, self.own
        self.store = _same_store(own.dataset)
        self.features = transformed(self.store.features, own.features)
        self.labels = torch.from_numpy(np.array(self.store.labels))
        self.model = build_model(plan, own, rank=self.group.rank).to(self.group.device)
        train_ids = drawn(self.store.nodes_in("train"), own.dataset.num_train, plan.seed)
        self.schedule = SeedSchedule.equal(train_ids, plan.batches, plan.seed)
        topology = self.store.topology(undirected=own.undirected)
        resample = isinstance(self.model, GraphSage)
        # One thread samples while others compute: a batch is a millisecond's work, and waking helpers takes a share.
        self.sampler = NeighborSampler(topology, own.num_neighbors, plan.seed, num_threads=1, resample=resample)
        self.collector = Collector(
            self.features,
            self.labels.numpy(),
            self.model.input_form,
            DTYPE_OF[plan.precision] if self.model.input_form == "self_and_mean" else torch.float32,
            plan.threads,
            plan.prefetch,
            pinned=self.group.device.type == "cuda",
        )

    def batches(self, epoch: int, first_step: int) -> Generator[MiniBatch]:
        """The mini-batches of this rank from a step of an epoch to the epoch's end, on the rank's device."""
        with closing(prefetch(lambda: self._make(epoch, first_step), self.plan.prefetch)) as batches:
            yield from feed(batches, self.group.device)

    def weights(self, epoch: int, step: int) -> tuple[int, ...]:
        """Every seed counts alike."""
        return self.schedule.counts(epoch, step)

    def loss_sum(self, batch: MiniBatch) -> Tensor:
        """Cross-entropy summed over the seeds of a batch, nats."""
        return F.cross_entropy(self.model(batch).float(), batch.labels, reduction="sum")

    def evaluate(self, split: Split, pause: Pause = never_pause) -> Measures:
        """Measures of a split by exact inference, the same on every rank; all ranks must call it."""
        self.model.eval()
        nodes, logits = self._exact_logits(self.store.nodes_in(split), pause)
        total = self.group.sum_numbers(tally(logits, self.labels[torch.from_numpy(nodes)]))
        self.model.train()
        return measures(total, self.own.dataset.num_classes)

    def _make(self, epoch: int, first_step: int) -> Iterator[MiniBatch]:
        for step in range(first_step, self.plan.calendar.steps_in(epoch)):
            begin = time.perf_counter()
            sampled = self.sampler.sample(self.schedule.seeds(epoch, step, self.group.rank))
            sampled_at = time.perf_counter()
            batch = self.collector.collect(sampled)
            self.times.sample_s += sampled_at - begin
            self.times.gather_s += time.perf_counter() - sampled_at
            yield batch

    def _exact_logits(self, nodes: np.ndarray, pause: Pause) -> tuple[np.ndarray, Tensor]:
        if isinstance(self.model, GraphSage):
            inference = LayerwiseInference(self.model, self.sampler.topology, self.features, self.group, pause)
            return inference.logits(nodes)
        shares = np.array_split(nodes, self.group.world_size)
        mine = shares[self.group.rank]
        sampler = replace(self.sampler, fanouts=(-1,) * len(self.own.num_neighbors))
        collector = replace(self.collector, prefetch=0, dtype=torch.float32)
        logits = [torch.empty(0, self.own.dataset.num_classes)]
        with torch.no_grad():
            for begin in range(0, len(shares[0]), _EVALUATION_BATCH):  # the first share is never the smaller
                pause()
                seeds = EvaluationSeeds(SeedIds(mine[begin : begin + _EVALUATION_BATCH]))
                if len(seeds.ids):
                    batch = collector.collect(sampler.sample(seeds))
                    logits.append(self.model(to_device(batch, self.group.device)).float().cpu())
        return mine, torch.cat(logits)


def _same_store(planned: GraphInfo) -> LabelledGraphStore:
    """The store that was planned with: a run is not to go on with another graph under the same path."""
    store = LabelledGraphStore.open(Path(planned.path))
    refuse_other_data(planned, store.metadata.checksum)
    return store


def transformed(features: Features, transform: FeatureTransform) -> Features:
    """Sparse features as the plan wants them; dense ones are as stored."""
    if not isinstance(features, SparseFeatures) or transform == "as_stored":
        return features
    if transform == "binary":
        return replace(features, values=np.ones_like(features.values))
    lengths = np.diff(features.indptr)
    sums = np.zeros(len(lengths), dtype=np.float32)
    np.add.at(sums, np.repeat(np.arange(len(lengths)), lengths), features.values)
    sums[sums == 0] = 1
    return replace(features, values=np.divide(features.values, np.repeat(sums, lengths), dtype=np.float32))
