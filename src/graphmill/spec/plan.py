"""The plan: an experiment with every choice made. Pure: no clock, no file, no environment (house rule 1)."""

import math
from typing import Literal

from pydantic import Field

from graphmill.base.errors import UserError
from graphmill.spec.experiment import (
    CheckpointSpec,
    Experiment,
    FeatureTransform,
    GraphSageSpec,
    ModelSpec,
    Spec,
    SyncSpec,
)


class MachineFacts(Spec):
    """What the planner must know about each of the hosts that the run is for; they are alike."""

    num_cores: int
    num_gpus: int


class DatasetFacts(Spec):
    """What the planner must know about the prepared graph."""

    name: str
    path: str
    checksum: str
    synthetic: bool
    num_nodes: int
    num_edges: int
    num_features: int
    num_classes: int
    num_train: int
    has_sparse_features: bool


class Plan(Spec):
    """Every choice made; what the ranks read. `plan.json` is this."""

    name: str
    run_id: str
    task: Literal["node_classification"]
    dataset: DatasetFacts
    undirected: bool
    features: FeatureTransform
    model: ModelSpec
    hosts: int = Field(description="machines; each starts the same number of ranks")
    ranks: int = Field(description="processes over all hosts")
    epochs: int = Field(description="passes over the training set, the last one perhaps cut short by steps_per_rank")
    steps_per_epoch: int = Field(description="steps of each rank in one epoch")
    steps_per_rank: int = Field(description="steps of each rank in the whole run")
    batch_size: int
    num_neighbors: tuple[int, ...]
    lr: float
    lr_schedule: Literal["constant", "cosine"]
    weight_decay: float
    seed: int
    precision: Literal["fp32", "bf16"]
    device: Literal["cpu", "cuda"]
    backend: Literal["gloo", "nccl"]
    threads: int
    prefetch: int
    sync: SyncSpec
    checkpoint: CheckpointSpec
    evaluate_every_epochs: int

    @property
    def ranks_per_host(self) -> int:
        """Every host starts as many."""
        return self.ranks // self.hosts


def resolve(
    experiment: Experiment, *, machine: MachineFacts, dataset: DatasetFacts, run_id: str, hosts: int = 1
) -> Plan:
    """Make every choice, or refuse with a `UserError` that says what clashes. `machine`: of each of the `hosts`."""
    train = experiment.train
    device = _device(train.device, machine)
    ranks = _ranks(train.ranks, device, machine, hosts)
    steps_per_epoch = math.ceil(dataset.num_train / (train.batch_size * ranks))
    steps_per_rank = _steps_per_rank(experiment, ranks, steps_per_epoch)
    if len(train.num_neighbors) != _num_hops(experiment.model, len(train.num_neighbors)):
        layers = _num_hops(experiment.model, len(train.num_neighbors))
        raise UserError(
            f"train.num_neighbors has {len(train.num_neighbors)} fan-outs, but model.num_layers is {layers},"
            " and each layer reads one hop",
            fix=f"give {layers} fan-outs, or set model.num_layers={len(train.num_neighbors)}",
        )
    return Plan(
        name=experiment.name,
        run_id=run_id,
        task=experiment.task,
        dataset=dataset,
        undirected=experiment.dataset.undirected,
        features=_features(experiment, dataset),
        model=experiment.model,
        hosts=hosts,
        ranks=ranks,
        epochs=math.ceil(steps_per_rank / steps_per_epoch),
        steps_per_epoch=steps_per_epoch,
        steps_per_rank=steps_per_rank,
        batch_size=train.batch_size,
        num_neighbors=train.num_neighbors,
        lr=train.lr,
        lr_schedule=train.lr_schedule,
        weight_decay=train.weight_decay,
        seed=train.seed,
        precision=train.precision,
        device=device,
        backend=_backend(train.backend, device),
        threads=max(1, machine.num_cores * hosts // ranks) if train.threads == "auto" else train.threads,
        prefetch=train.prefetch,
        sync=train.sync,
        checkpoint=train.checkpoint,
        evaluate_every_epochs=train.evaluate_every_epochs,
    )


def _device(asked: Literal["auto", "cpu", "cuda"], machine: MachineFacts) -> Literal["cpu", "cuda"]:
    if asked == "cuda" and machine.num_gpus == 0:
        raise UserError(
            "train.device is cuda, but this machine has no GPU that the driver reports", fix="set train.device=cpu"
        )
    if asked == "auto":
        return "cuda" if machine.num_gpus else "cpu"
    return asked


def _ranks(asked: int | Literal["auto"], device: str, machine: MachineFacts, hosts: int) -> int:
    ranks = hosts * (machine.num_gpus if device == "cuda" else 1) if asked == "auto" else asked
    if ranks % hosts:
        raise UserError(
            f"{ranks} ranks do not divide among {hosts} hosts, and every host starts the same number",
            fix=f"set train.ranks={math.ceil(ranks / hosts) * hosts}",
        )
    if device == "cuda" and ranks > machine.num_gpus * hosts:
        there = f"this machine has {machine.num_gpus}" if hosts == 1 else f"{hosts} hosts have {machine.num_gpus} each"
        raise UserError(
            f"{ranks} ranks want a GPU each, but {there}",
            fix=f"set train.ranks={machine.num_gpus * hosts}, or train.device=cpu",
        )
    return ranks


def _backend(asked: Literal["auto", "gloo", "nccl"], device: str) -> Literal["gloo", "nccl"]:
    if asked == "nccl" and device == "cpu":
        raise UserError(
            "train.backend is nccl, but train.device is cpu, and nccl moves GPU memory only",
            fix="set train.backend=gloo",
        )
    if asked == "auto":
        return "nccl" if device == "cuda" else "gloo"
    return asked


def _steps_per_rank(experiment: Experiment, ranks: int, steps_per_epoch: int) -> int:
    train = experiment.train
    limits = []
    if train.max_steps is not None:
        if train.max_steps % ranks:
            lower = train.max_steps // ranks * ranks
            raise UserError(
                f"train.max_steps counts steps over all ranks; {train.max_steps} does not divide among {ranks} ranks",
                fix=f"set train.max_steps={lower or ranks} or {lower + ranks}",
            )
        limits.append(train.max_steps // ranks)
    if train.epochs is not None:
        limits.append(train.epochs * steps_per_epoch)
    if not limits:
        raise UserError(
            "neither train.epochs nor train.max_steps says when to stop",
            fix="set one of them, for example -O train.epochs=10",
        )
    return min(limits)


def _num_hops(model: ModelSpec, num_fanouts: int) -> int:
    return model.num_layers if isinstance(model, GraphSageSpec) else num_fanouts


def _features(experiment: Experiment, dataset: DatasetFacts) -> FeatureTransform:
    asked = experiment.dataset.features
    if asked != "as_stored" and not dataset.has_sparse_features:
        raise UserError(
            f"dataset.features is {asked}, which is for sparse features, but those of {dataset.name} are dense",
            fix="set dataset.features=as_stored",
        )
    return asked
