"""Prepared assignment problems: costs, exact answers and splits, at rest in flat arrays, one instance after another."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, NonNegativeInt, PositiveInt

from graphmill.base.errors import AbsentDataError, UserError
from graphmill.graph.header import Expected, Header, damaged
from graphmill.graph.pages import evict
from graphmill.graph.prepared import PreparedStore
from graphmill.tasks.assignment.data.instance import (
    NO_SEQUENCE,
    SPLITS,
    About,
    Instance,
    RecordError,
    RowIds,
    Split,
    Stated,
    checked_costs,
    confirmed,
    solved,
)
from graphmill.tasks.assignment.data.oracle import Columns, Costs, Duals, breach, matched_cost, not_an_assignment
from graphmill.tasks.assignment.page.data import (
    KIND_NAME,
    AssignmentDatasetSpec,
    AssignmentInfo,
    SizeBucket,
    learnt_from,
    refuse_absent_sizes,
)

OF_INSTANCES: Final[Mapping[str, str]] = {
    **{"optima": "float64", "families": "int16", "sizes": "int32", "noise_std": "float32"},
    **{"sequences": "int32", "frames": "int32"},
}
"""Arrays with a number for each instance."""
_SHOWN: Final = 10  # breaches that one error names


class AssignmentMetadata(Header):
    """What prepared assignment problems say about themselves."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    format_version: Literal["assignments/1"] = "assignments/1"
    source: str = Field(description="where the instances came from")
    generator: Mapping[str, Any] | None = Field(
        description="what generated instances depend on; null: others made them"
    )
    dtype: Literal["float64", "float32"] = Field(description="of the costs")
    num_instances: PositiveInt
    num_costs: PositiveInt = Field(description="entries of all matrices")
    num_rows: PositiveInt = Field(description="of all matrices")
    num_cols: PositiveInt = Field(description="of all matrices")
    max_rows: PositiveInt = Field(description="of one matrix")
    max_cols: PositiveInt = Field(description="of one matrix")
    num_sizes: PositiveInt
    num_families: PositiveInt
    family_names: tuple[str, ...] = Field(description="families[i] is a place in it")
    num_sequences: NonNegativeInt = Field(description="of frames that follow each other")
    num_tag_bytes: NonNegativeInt
    num_train: NonNegativeInt
    num_val: NonNegativeInt
    num_test: NonNegativeInt
    split: str = Field(description="who drew the split")
    num_duplicates: NonNegativeInt = Field(description="instances that were left out: there was one with these costs")
    num_damaged: NonNegativeInt = Field(description="records that were left out: they were damaged, or wrong")
    damaged: tuple[str, ...] = Field(description="the first of those, with what was wrong")
    num_solved_again: NonNegativeInt = Field(
        description="instances whose source had duals that were not exact to the last digits"
    )

    def expected_arrays(self) -> Expected:
        """What the arrays must be."""
        instances = self.num_instances
        return {
            "costs": (self.dtype, (self.num_costs,)),
            **dict.fromkeys(("offsets", "u_offsets", "v_offsets", "tag_offsets"), ("int64", (instances + 1,))),
            "shapes": ("int32", (instances, 2)),
            "fingerprints": ("uint64", (instances, 2)),
            "u": ("float64", (self.num_rows,)),
            "v": ("float64", (self.num_cols,)),
            **dict.fromkeys(("columns", "row_ids"), ("int32", (self.num_rows,))),
            "tags": ("uint8", (self.num_tag_bytes,)),
            **{name: (dtype, (instances,)) for name, dtype in OF_INSTANCES.items()},
            **{split: ("int64", (getattr(self, f"num_{split}"),)) for split in SPLITS},
        }

    def disagreement(self) -> str | None:
        """How the counts, dtypes and shapes contradict each other, or None."""
        if problem := super().disagreement():
            return problem
        if self.num_train + self.num_val + self.num_test != self.num_instances:
            return f"{self.num_train} + {self.num_val} + {self.num_test} instances are not {self.num_instances}"
        return None


@dataclass(frozen=True, slots=True)
class AssignmentStore(PreparedStore):
    """Prepared assignment problems, mapped once: any thread may ask for any instance."""

    metadata: AssignmentMetadata
    arrays: Mapping[str, NDArray[Any]] = field(init=False, repr=False, compare=False)

    kind = KIND_NAME
    own_part = AssignmentMetadata

    def __post_init__(self) -> None:
        mapped = {name: PreparedStore.array(self, name) for name in self.metadata.arrays}
        object.__setattr__(self, "arrays", mapped)

    def __len__(self) -> int:
        return self.metadata.num_instances

    def array(self, name: str) -> NDArray[Any]:
        """One of the flat arrays, mapped."""
        return self.arrays[name]

    def cost(self, instance: int) -> Costs:
        """Costs [rows, cols], mapped; +inf: infeasible."""
        return self._part("costs", "offsets", instance).reshape(self.shape(instance))

    def evict(self, instance: int) -> None:
        """Hand the costs of an instance that was read back to the page cache.

        They stay mapped and are found there again. Otherwise a process counts as its own, in time, all that is stored.
        """
        evict(self._part("costs", "offsets", instance))

    def u(self, instance: int) -> Duals:
        """Optimal duals of the rows [rows], in the fixed gauge (`oracle.fix_gauge`)."""
        return self._part("u", "u_offsets", instance)

    def v(self, instance: int) -> Duals:
        """Optimal duals of the columns [cols], in the fixed gauge."""
        return self._part("v", "v_offsets", instance)

    def columns(self, instance: int) -> Columns:
        """The optimal column of each row [rows]; -1: none."""
        return self._part("columns", "u_offsets", instance)

    def row_ids(self, instance: int) -> RowIds | None:
        """What rows of the frames of a sequence are the same [rows]; None: nothing is known of that."""
        found: RowIds = self._part("row_ids", "u_offsets", instance)
        return None if found[0] == NO_SEQUENCE else found

    def optimum(self, instance: int) -> float:
        """The cost of the optimal assignment."""
        return float(self.array("optima")[instance])

    def shape(self, instance: int) -> tuple[int, int]:
        """Rows and columns."""
        rows, cols = self.array("shapes")[instance].tolist()
        return rows, cols

    def family(self, instance: int) -> str:
        """The distribution that the costs are of."""
        return self.metadata.family_names[int(self.array("families")[instance])]

    def tag(self, instance: int) -> str:
        """What its source calls it."""
        return bytes(self._part("tags", "tag_offsets", instance)).decode("utf-8", "replace")

    def about(self, instance: int) -> About:
        """Facts of an instance besides costs and answer; its split is not among them."""
        numbers = {name: self.array(name)[instance] for name in OF_INSTANCES}
        return About(
            family=self.family(instance),
            size=int(numbers["sizes"]),
            tag=self.tag(instance),
            noise_std=float(numbers["noise_std"]),
            sequence=int(numbers["sequences"]),
            frame=int(numbers["frames"]),
        )

    def instance(self, number: int) -> Instance:
        """One of the instances with its exact answer, as it is stored."""
        answer = self.columns(number), self.u(number), self.v(number), self.optimum(number)
        return Instance(self.cost(number), *answer, self.about(number), self.row_ids(number))

    def instances(
        self, split: Split, sizes: Iterable[int] | None = None, families: Iterable[str] | None = None
    ) -> NDArray[np.int64]:
        """Rising ids of the instances of a split, of some sizes and families only if those are given."""
        ids = np.asarray(self.array(split))
        if sizes is not None:
            ids = ids[np.isin(self.array("sizes")[ids], list(sizes))]
        if families is not None:
            names = self.metadata.family_names
            ids = ids[np.isin(self.array("families")[ids], [names.index(each) for each in families if each in names])]
        return ids

    def _part(self, name: str, offsets: str, instance: int) -> NDArray[Any]:
        begin, end = self.array(offsets)[instance : instance + 2].tolist()
        return self.array(name)[begin:end]

    def verify(self) -> None:
        """Read everything: checksums, then each instance. `UserError` names the first breaches."""
        PreparedStore.verify(self)
        breaches = list(self._breaches())
        if breaches:
            more = f"; and {len(breaches) - _SHOWN} more" if len(breaches) > _SHOWN else ""
            raise damaged(self.path, "; ".join(breaches[:_SHOWN]) + more)

    def _breaches(self) -> Iterator[str]:
        """What is wrong with single instances. The duals prove each assignment optimal, or they do not."""
        where = np.concatenate([np.asarray(self.array(split)) for split in SPLITS])
        if not np.array_equal(np.sort(where), np.arange(len(self))):
            yield "its splits do not have each instance once"
        rows, cols = np.asarray(self.array("shapes"), np.int64).T
        for name, lengths in (("offsets", rows * cols), ("u_offsets", rows), ("v_offsets", cols)):
            if not np.array_equal(np.diff(self.array(name)), lengths):
                yield f"{name} do not fit the shapes"
                return
        for number in range(len(self)):
            if problem := self._breach(self.instance(number)):
                yield f"instance {number} ({self.tag(number)}): {problem}"

    def _breach(self, instance: Instance) -> str | None:
        try:
            checked_costs(instance.costs, self.metadata.dtype)
        except RecordError as error:
            return str(error)
        problem = not_an_assignment(instance.shape, instance.columns) or breach(
            instance.costs, instance.columns, instance.u, instance.v
        )
        if problem:
            return problem
        cost = matched_cost(instance.costs, instance.columns)
        if cost == instance.optimum:
            return None
        return f"its optimum is {instance.optimum!r}, and its assignment costs {cost!r}"

    def info(self, spec: AssignmentDatasetSpec) -> AssignmentInfo:
        """What the planner must know. `UserError` if there is no such instance, or none in a split."""
        known = self.metadata
        self._refuse_absent(spec)
        ids = {split: self.instances(split, spec.sizes_to_read, spec.families) for split in SPLITS}
        if empty := [split for split in SPLITS if not len(ids[split])]:
            raise UserError(
                f"{known.name} has no such instance in {', '.join(empty)}",
                fix="prepare more instances of each size, or set dataset.sizes and dataset.families otherwise",
            )
        buckets = self._buckets(ids)
        return AssignmentInfo(
            name=known.name,
            path=str(self.path.resolve()),
            checksum=known.checksum,
            synthetic=known.synthetic,
            num_train=learnt_from(spec, buckets),
            num_val=len(ids["val"]),
            num_test=len(ids["test"]),
            num_instances=sum(map(len, ids.values())),
            num_costs=known.num_costs,
            dtype=known.dtype,
            buckets=buckets,
        )

    def _refuse_absent(self, spec: AssignmentDatasetSpec) -> None:
        refuse_absent_sizes(self.metadata.name, spec, np.unique(self.array("sizes")).tolist())
        there = self.metadata.family_names
        if absent := [each for each in spec.families or () if each not in there]:
            raise AbsentDataError(
                f"dataset.families: {self.metadata.name} has no instance of {', '.join(absent)}",
                fix=f"it has {', '.join(there)}: set dataset.families to some of these, or leave it out",
            )

    def _buckets(self, ids: Mapping[Split, NDArray[np.int64]]) -> tuple[SizeBucket, ...]:
        of_all = np.concatenate(list(ids.values()))
        sizes, shapes = np.asarray(self.array("sizes")), np.asarray(self.array("shapes"))
        buckets = []
        for size in np.unique(sizes[of_all]).tolist():
            max_rows, max_cols = shapes[of_all[sizes[of_all] == size]].max(axis=0).tolist()
            counts = {f"num_{split}": int((sizes[ids[split]] == size).sum()) for split in SPLITS}
            buckets.append(SizeBucket(size=size, max_rows=max_rows, max_cols=max_cols, **counts))
        return tuple(buckets)

    def described(self) -> Sequence[tuple[str, Any]]:
        """What `graphmill inspect` shows."""
        known = self.metadata
        left_out = [("duplicates left out", known.num_duplicates), ("damaged, left out", known.num_damaged)]
        return [
            ("instances", known.num_instances),
            ("largest", f"{known.max_rows:,} x {known.max_cols:,}"),
            ("costs", f"{known.num_costs:,} ({known.dtype})"),
            *([("sequences", known.num_sequences)] if known.num_sequences else []),
            ("split", f"train {known.num_train:,}, val {known.num_val:,}, test {known.num_test:,} ({known.split})"),
            *[(name, count) for name, count in left_out if count],
        ]

    def table(self) -> Sequence[Mapping[str, Any]]:
        """How many instances there are of each size and family: `tasks.stores.HasTable`."""
        splits = np.empty(len(self), np.int8)
        for code, split in enumerate(SPLITS):
            splits[np.asarray(self.array(split))] = code
        sizes, families, shapes = (np.asarray(self.array(name)) for name in ("sizes", "families", "shapes"))
        return distribution(sizes, np.array(self.metadata.family_names)[families], shapes, splits)


def distribution(
    sizes: NDArray[Any], families: NDArray[Any], shapes: NDArray[Any], splits: NDArray[np.int8]
) -> Sequence[Mapping[str, Any]]:
    """A row for each size and family: instances in all and of each split, and the range of their shapes."""
    found = []
    for size in np.unique(sizes).tolist():
        for family in np.unique(families[sizes == size]).tolist():
            chosen = (sizes == size) & (families == family)
            rows, cols = shapes[chosen].T
            row: dict[str, Any] = {"size": size, "family": family, "instances": int(chosen.sum())}
            row |= {split: int((splits[chosen] == code).sum()) for code, split in enumerate(SPLITS)}
            found.append(row | {"rows": _range(rows), "cols": _range(cols)})
    return found


def _range(values: NDArray[Any]) -> str:
    least, most = int(values.min()), int(values.max())
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


class StoredInstances:
    """`sources.Source`: the instances of a store. `checks`: their answers are checked; else they are solved for."""

    def __init__(self, store: AssignmentStore, *, checks: bool) -> None:
        self._store, self._checks = store, checks
        self._splits: dict[int, Split] = {
            each: split for split in SPLITS for each in np.asarray(store.array(split)).tolist()
        }

    def __len__(self) -> int:
        return len(self._store)

    @property
    def identity(self) -> Mapping[str, Any]:
        """The store's checksum: wherever it lies."""
        return {"checksum": self._store.metadata.checksum}

    def name_of(self, number: int) -> str:
        """Name of an instance for messages."""
        return f"{self._store.path}, instance {number}"

    def summary(self, number: int) -> tuple[About, tuple[int, int]]:
        """What is known of it, and its shape."""
        return replace(self._store.about(number), split=self._splits[number]), self._store.shape(number)

    def instance(self, number: int) -> Instance:
        """Instance of the store, with its split there."""
        found = self._store.instance(number)
        about, _ = self.summary(number)
        costs = checked_costs(found.costs, self._store.metadata.dtype)
        stated = Stated(found.columns, found.u, found.v, found.optimum)
        again = confirmed(costs, stated, about) if self._checks else solved(costs, about)
        return replace(again, row_ids=found.row_ids)
