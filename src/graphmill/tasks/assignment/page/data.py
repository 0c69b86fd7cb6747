"""Assignment problems at rest: what `prepare` takes, what an experiment asks of them, what a planner must know."""

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Final, Literal, Self, get_args

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from graphmill.base.errors import AbsentDataError
from graphmill.config.frozen import Spec
from graphmill.spec.experiment import DatasetSpec
from graphmill.spec.kinds.kind import DatasetInfo, KnownDataset

KIND_NAME: Final = "assignment"
GENERATED: Final = "synthetic/assignment"

Family = Literal[
    "uniform",
    "sparse",
    "metric",
    "clustered",
    "noisy_linear",
    "low_rank",
    "tie",
    "geometric",
    "tracking",
    "transportation",
]
FAMILIES: Final[tuple[Family, ...]] = get_args(Family)
DEFAULT_SIZES: Final = (64, 128)
DEFAULT_INSTANCES: Final = 32
DEFAULT_FRAMES: Final = 8
SHARES: Final = (0.7, 0.15, 0.15)  # of training, validation, test, where a split is drawn
_COUNT: Final = re.compile(r"(?:([a-z_]+)/)?([1-9][0-9]*):([1-9][0-9]*)")


class AssignmentPrepareOptions(Spec):
    """Options of `graphmill prepare` for assignment problems."""

    sizes: tuple[PositiveInt, ...] | None = Field(
        None, description="synthetic/assignment: rows of an instance; null: 64 and 128, or those of instances_map"
    )
    families: tuple[Family, ...] | None = Field(
        None, description="synthetic/assignment: which distributions of costs; null: all of them"
    )
    instances: PositiveInt | None = Field(
        None, description="synthetic/assignment: instances of each family and size; of tracking: frames; null: 32"
    )
    instances_map: tuple[Annotated[str, Field(pattern=_COUNT.pattern)], ...] | None = Field(
        None, description="synthetic/assignment: other numbers of instances, as SIZE:COUNT or FAMILY/SIZE:COUNT"
    )
    frames: PositiveInt | None = Field(None, description="synthetic/assignment: frames of a tracking sequence; null: 8")
    seed: NonNegativeInt | None = Field(None, description="synthetic/assignment: of the generator; null: 0")
    noise_std: float = Field(
        0.0, ge=0, allow_inf_nan=False, description="synthetic/assignment: s.d. of a noise that is added to the costs"
    )
    noise_prob: float = Field(1.0, ge=0, le=1, description="synthetic/assignment: share of instances with that noise")
    dtype: Literal["float64", "float32"] = Field(
        "float64", description="number format of the costs at rest; the duals are those of the costs as they are kept"
    )
    split_seed: NonNegativeInt | None = Field(
        None,
        description="draw 70/15/15 of each size and family with this seed, frames of a sequence together; null: as "
        "the files say (train.h5, val.h5, test.h5; prepared data), else drawn with seed 0",
    )
    duals: Literal["stored", "solve"] = Field(
        "stored",
        description="of HDF5 files and prepared data; stored: their duals and assignments are checked and kept; solve: "
        "only their costs are read",
    )
    damaged: Literal["refuse", "skip"] = Field(
        "refuse", description="a record that cannot be read or is wrong; skip: it is left out, named and counted"
    )
    duplicates: Literal["drop", "keep"] = Field("drop", description="instances with the same costs after the first")
    matrix_costs: Literal["magnitude", "log_ratio"] = Field(
        "magnitude",
        description="of Matrix Market files; magnitude: |a|; log_ratio: log(largest of the column) - log |a|, as MC64 "
        "has it; what is not stored is infeasible",
    )
    workers: PositiveInt | None = Field(None, description="threads that make instances; null: one for each core")

    @model_validator(mode="after")
    def _known_counts(self) -> Self:
        known = self.families or FAMILIES
        for text in self.instances_map or ():
            family, size, _ = parsed_count(text)
            if family is not None and family not in known:
                raise ValueError(f"instances_map has {text}, and families are {', '.join(known)}")
            if self.sizes is not None and size not in self.sizes:
                raise ValueError(f"instances_map has {text}, and sizes are {', '.join(map(str, self.sizes))}")
        return self

    @property
    def generator(self) -> dict[str, object]:
        """What the generated instances depend on."""
        return {
            "seed": self.seed or 0,
            "frames": self.frames or DEFAULT_FRAMES,
            "noise_std": self.noise_std,
            "noise_prob": self.noise_prob,
            "dtype": self.dtype,
            "instances": [[family, size, count] for (family, size), count in self.counts().items()],
        }

    def counts(self) -> dict[tuple[Family, int], int]:
        """How many instances there are to be of every family and size: small ones first, families as in `FAMILIES`."""
        asked = [parsed_count(text) for text in self.instances_map or ()]
        sizes = self.sizes or tuple(size for _, size, _ in asked) or DEFAULT_SIZES
        others = {(family, size): count for family, size, count in asked}
        found: dict[tuple[Family, int], int] = {}
        for size in sorted(set(sizes)):
            for family in FAMILIES:
                if family in (self.families or FAMILIES):
                    of_size = others.get((None, size), self.instances or DEFAULT_INSTANCES)
                    found[family, size] = others.get((family, size), of_size)
        return found


def parsed_count(text: str) -> tuple[str | None, int, int]:
    """Family (None: all), size and count of `SIZE:COUNT` or `FAMILY/SIZE:COUNT`."""
    match = _COUNT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not SIZE:COUNT or FAMILY/SIZE:COUNT")
    return match[1], int(match[2]), int(match[3])


class ReplaySpec(Spec):
    """Instances of sizes that were learnt before, among those of an epoch, so that they are not forgotten."""

    sizes: tuple[PositiveInt, ...] = Field((), description="which sizes are learnt again; []: none")
    share: float = Field(
        0.0, ge=0, lt=1, description="of the instances of an epoch; equally many of each size, others in every epoch"
    )

    @model_validator(mode="after")
    def _both_or_none(self) -> Self:
        if bool(self.sizes) != bool(self.share):
            raise ValueError(f"sizes is {list(self.sizes)} and share is {self.share}: give both, or neither")
        return self


class AssignmentDatasetSpec(DatasetSpec):
    """Which prepared assignment problems to learn from."""

    name: str = Field(GENERATED, description="name of a prepared dataset, or a path to its folder")
    sizes: tuple[PositiveInt, ...] | None = Field(None, description="only instances of these sizes; null: all")
    families: tuple[str, ...] | None = Field(None, description="only instances of these families; null: all")
    replay: ReplaySpec = ReplaySpec()

    @model_validator(mode="after")
    def _replays_others(self) -> Self:
        again = sorted(set(self.replay.sizes) & set(self.sizes or self.replay.sizes))
        if again:
            raise ValueError(f"replay.sizes has {again}, which the run learns from anyway")
        return self

    @property
    def sizes_to_read(self) -> tuple[int, ...] | None:
        """Sizes of all instances that are read, also of those that are replayed; None: all."""
        return None if self.sizes is None else (*self.sizes, *self.replay.sizes)


class SizeBucket(Spec):
    """The instances of one size, as far as the dataset section admits them."""

    size: int = Field(description="rows, as it was asked for; the frames of a tracking sequence differ from it")
    max_rows: int
    max_cols: int
    num_train: int
    num_val: int
    num_test: int


class AssignmentInfo(DatasetInfo):
    """What the planner must know about prepared assignment problems."""

    num_instances: int = Field(description="of all sizes, families and splits that are asked for")
    num_val: int
    num_test: int
    num_costs: int = Field(description="entries of all matrices at rest, also of those that are not asked for")
    dtype: Literal["float64", "float32"]
    buckets: tuple[SizeBucket, ...] = Field(description="rising by size")

    @property
    def max_rows(self) -> int:
        """Rows of an instance, at most."""
        return max(bucket.max_rows for bucket in self.buckets)

    @property
    def max_cols(self) -> int:
        """Columns of an instance, at most."""
        return max(bucket.max_cols for bucket in self.buckets)


def learnt_from(spec: AssignmentDatasetSpec, buckets: Iterable[SizeBucket]) -> int:
    """Training instances of an epoch beside those that are learnt again."""
    return sum(bucket.num_train for bucket in buckets if bucket.size not in spec.replay.sizes)


def refuse_absent_sizes(name: str, spec: AssignmentDatasetSpec, present: Iterable[int]) -> None:
    """Raise a `UserError` if sizes are asked for of which there is no instance to train on."""
    there = set(present)
    missing = ", ".join(map(str, sorted(set(spec.sizes_to_read or ()) - there)))
    if missing:
        listed = ", ".join(map(str, sorted(there))) or "none"
        raise AbsentDataError(
            f"dataset.sizes asks for {missing}, of which {name} has no instance; its sizes are {listed}",
            fix=f"make some: graphmill prepare {GENERATED} --as MORE -o sizes=[{missing}], and join both:"
            f" graphmill prepare JOINED --task {KIND_NAME} --from FOLDER --from FOLDER; or set dataset.sizes to some of"
            " those that are there",
        )


COUNTS: Final[Mapping[str, str]] = {"num_instances": "instances", "num_sizes": "sizes", "num_families": "families"}

DATASETS: Final = (
    KnownDataset(GENERATED, {}, "generated", "nothing: sizes, families, instances and seed are options"),
    KnownDataset(
        "assignment/orlib",
        {},
        "given",
        "a folder of OR-Library's assign100.txt … assign800.txt, one of them, or a .npz file with names and matrices",
    ),
    KnownDataset(
        "assignment/suitesparse", {}, "given", "Matrix Market files (.mtx, .mtx.gz) of SuiteSparse, or a folder of them"
    ),
)
