"""What the kinds of studies ask for. Strong and weak ones vary the number of ranks or hosts, and nothing else.

strong: the global problem is the same in every cell: the same training set, and the same global batch, so that a rank's
batch is `global_batch` ÷ ranks and every cell does the same steps on the same seeds.
weak: a rank's work is the same in every cell: the same batch, and `train_per_rank` seeds an epoch, drawn from the
training set, so that the training set of a cell is `train_per_rank` × ranks and every cell does as many steps.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal, Protocol

from graphmill.base.errors import UserError
from graphmill.config.problems import Problem
from graphmill.spec.experiment import Experiment

StudyKind = Literal["sweep", "strong", "weak", "sensitivity"]

_RANKS, _HOSTS = ("train.ranks", "slurm.ranks_per_host"), ("slurm.hosts",)
_BATCH, _LIMIT = ("train.batch_size",), ("dataset.train_limit",)


class KindOfStudy(Protocol):
    """What is read here of a study."""

    @property
    def name(self) -> str:
        """Of the study."""

    @property
    def kind(self) -> StudyKind:
        """Which of the four."""

    @property
    def set(self) -> dict[str, Any]:
        """Dotted keys that all cells share."""

    @property
    def vary(self) -> dict[str, list[Any]]:
        """Dotted key: values."""

    @property
    def cells(self) -> list[dict[str, Any]]:
        """Cells by hand."""

    @property
    def ranks(self) -> list[int]:
        """One axis."""

    @property
    def hosts(self) -> list[int]:
        """The other."""

    @property
    def ranks_per_host(self) -> int:
        """Along the axis of hosts."""

    @property
    def sizes(self) -> list[int]:
        """Of the axis, rising."""

    @property
    def axis(self) -> Literal["ranks", "hosts"]:
        """Which grows."""

    @property
    def global_batch(self) -> int | None:
        """Of a strong study."""

    @property
    def train_per_rank(self) -> int | None:
        """Of a weak study."""


def axis_cells(study: KindOfStudy) -> list[dict[str, Any]]:
    """The settings of each cell of a strong or weak study, smallest first; `kind_problems` found none."""
    return [_axis_cell(study, size) for size in study.sizes]


def kind_problems(study: KindOfStudy, where: str) -> Iterator[Problem]:
    """What is missing of the study's kind, and what belongs to another."""
    if study.kind in ("strong", "weak"):
        yield from _axis_problems(study, where)
    else:
        own = {"ranks": study.ranks, "hosts": study.hosts}
        for name in [name for name, sizes in own.items() if sizes]:
            fix = (
                f"set kind to strong or weak, or vary train.{name}" if name == "ranks" else "set kind to strong or weak"
            )
            yield Problem(where, f"{name} belongs to kinds strong and weak, but kind is {study.kind}", fix)
    if study.kind == "sensitivity" and (not study.vary or study.cells):
        what = "cells" if study.cells else "no vary"
        yield Problem(where, f"kind is sensitivity, with {what}", "give vary: {dotted key: [values]}, and no cells")
    if study.kind != "strong" and study.global_batch is not None:
        yield Problem(where, f"global_batch belongs to kind strong, but kind is {study.kind}", "remove it")
    if study.kind != "weak" and study.train_per_rank is not None:
        yield Problem(where, f"train_per_rank belongs to kind weak, but kind is {study.kind}", "remove it")


def check_experiment(study: KindOfStudy, experiment: Experiment) -> None:
    """Refuse what would make the cells of a strong or weak study differ in more than their size."""
    train = experiment.train
    if study.kind in ("strong", "weak") and study.axis == "ranks" and train.threads == "auto":
        raise UserError(
            "train.threads is auto: a rank would have fewer cores in a larger cell, and the cells of a"
            f" {study.kind} study are to differ in the number of ranks alone",
            fix="add set: {train.threads: 1} to the study",
        )
    if study.kind in ("strong", "weak") and train.max_steps is not None:
        raise UserError(
            "train.max_steps counts steps over all ranks, so that a larger cell would do fewer",
            fix="add set: {train.max_steps: null, train.epochs: 3} to the study",
        )
    if study.kind != "sweep" and train.epochs is not None and train.epochs < 2:
        raise UserError(
            "train.epochs is 1, and the first epoch is warm-up, kept apart from the others",
            fix="add set: {train.epochs: 3} to the study, or more",
        )


def refuse_hosts_here(study: KindOfStudy) -> None:
    """Raise a `UserError` if the cells are for more hosts than this one."""
    if max(study.hosts, default=1) > 1:
        listed = ", ".join(str(size) for size in study.sizes)
        raise UserError(
            f"study {study.name} is for {listed} hosts, and `study run` has this one only",
            fix="`graphmill study submit`, or give ranks instead of hosts",
        )


def _axis_cell(study: KindOfStudy, size: int) -> dict[str, Any]:
    ranks = size * study.ranks_per_host if study.axis == "hosts" else size
    settings: dict[str, Any] = {"name": f"{study.axis}-{size}", "train.ranks": ranks}
    if study.axis == "hosts":
        settings["slurm.hosts"] = size
    if study.global_batch is not None:
        settings["train.batch_size"] = study.global_batch // ranks
    if study.train_per_rank is not None:
        settings["dataset.train_limit"] = study.train_per_rank * ranks
    return settings


def _axis_problems(study: KindOfStudy, where: str) -> Iterator[Problem]:
    if bool(study.ranks) == bool(study.hosts):
        what = "both ranks and hosts" if study.ranks else "neither ranks nor hosts"
        yield Problem(where, f"kind is {study.kind}, with {what}", "give one of them, such as ranks: [1, 2, 4]")
    elif len(set(study.sizes)) < max(2, len(study.sizes)):
        what = "holds a number twice" if len(study.sizes) > 1 else "holds one number, and nothing to compare it with"
        yield Problem(where, f"{study.axis} {what}", f"give several, such as {study.axis}: [1, 2, 4]")
    if study.ranks_per_host != 1 and not study.hosts:
        yield Problem(where, "ranks_per_host is for the axis hosts, but there is none", "remove it, or give hosts")
    if study.vary or study.cells:
        more = "vary" if study.vary else "cells"
        yield Problem(
            where,
            f"kind is {study.kind}, with {more}: its cells differ in size alone",
            "make a study of each, or a sweep",
        )
    yield from _amount_problems(study, where)
    taken = (*_RANKS, *(_HOSTS if study.hosts else ()), *(_BATCH if study.kind == "strong" else _LIMIT))
    for key in [key for key in taken if key in study.set]:
        yield Problem(where, f"set.{key}: a {study.kind} study gives it to every cell", "remove it")


def _amount_problems(study: KindOfStudy, where: str) -> Iterator[Problem]:
    ranks = [size * (study.ranks_per_host if study.hosts else 1) for size in study.sizes]
    if study.kind == "weak" and study.train_per_rank is None:
        what = "kind is weak, but train_per_rank does not say how many training nodes or windows a rank has"
        yield Problem(where, what, "give it, such as train_per_rank: 8192")
    if study.kind == "strong" and study.global_batch is None:
        what = "kind is strong, but global_batch does not say how many seeds a step has over all ranks"
        yield Problem(where, what, "give it, such as global_batch: 1024")
    uneven = _uneven(study.global_batch, ranks)
    if uneven:
        what = f"global_batch {study.global_batch} does not divide among {', '.join(map(str, uneven))} ranks"
        yield Problem(where, what, "give a multiple of all numbers of ranks, such as a power of two")


def _uneven(batch: int | None, ranks: Sequence[int]) -> list[int]:
    return [] if batch is None else [number for number in ranks if batch % number]
