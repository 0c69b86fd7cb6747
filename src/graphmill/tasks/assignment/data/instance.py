"""One assignment problem with its exact answer and its split, as every source gives it and every store keeps it."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
import xxhash
from numpy.typing import NDArray

from graphmill.graph.keys import Purpose, key_of, keys_below
from graphmill.tasks.assignment.data.oracle import (
    Columns,
    Costs,
    Duals,
    InfeasibleError,
    breach,
    fix_gauge,
    matched_cost,
    not_an_assignment,
    shortest_path_duals,
    solve_exactly,
    tolerance,
)
from graphmill.tasks.assignment.page.data import SHARES

Split = Literal["train", "val", "test"]
SPLITS: Final[tuple[Split, ...]] = ("train", "val", "test")
TO_BE_DRAWN: Final = -1
_GOLDEN: Final = (5**0.5 - 1) / 2
NO_SEQUENCE: Final = -1
_STORED_TO: Final = 1e-6  # duals of other programs may be off by this much of the largest: they are solved for again


RowIds = NDArray[np.int32]


def drawn_splits(strata: Sequence[Hashable], units: Sequence[Hashable], seed: int) -> NDArray[np.int8]:
    """Numbers in `SPLITS` [num_instances]. Instances of one unit are in one split, which its first one's stratum draws.

    The units stand stratum after stratum, within it in an order that is drawn; multiples of the golden section, from a
    place that is drawn, spread them over the shares: of all units as of each stratum, however small.
    """
    first: dict[Hashable, int] = {}
    unit_of = np.array([first.setdefault(unit, len(first)) for unit in units], dtype=np.int64)
    stratum: dict[Hashable, int] = {}
    place = np.unique(unit_of, return_index=True)[1] if len(unit_of) else unit_of
    stratum_of = np.array([stratum.setdefault(strata[each], len(stratum)) for each in place], dtype=np.int64)
    keys = keys_below(key_of(seed, Purpose.SPLIT), np.arange(len(first), dtype=np.int64))
    order = np.lexsort((keys, stratum_of))
    begin = key_of(seed, Purpose.SPLIT, 1) / 2**64
    spread = (begin + np.arange(len(first)) * _GOLDEN) % 1
    splits = np.empty(len(first), dtype=np.int8)
    splits[order] = np.searchsorted(np.cumsum(SHARES)[:-1], spread, side="right")
    return splits[unit_of]


class RecordError(Exception):
    """One record cannot be used; the others may be. Its text says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class About:
    """What is known of an instance besides its costs and their answer."""

    family: str
    size: int  # its bucket: rows as asked for, or as they are
    tag: str = ""
    noise_std: float = 0.0
    sequence: int = NO_SEQUENCE
    frame: int = NO_SEQUENCE
    split: Split | None = None  # None: to be drawn


@dataclass(frozen=True, slots=True)
class Instance:
    """Costs [rows, cols], the optimal column of each row, duals in the fixed gauge, the optimum."""

    costs: Costs
    columns: Columns
    u: Duals
    v: Duals
    optimum: float
    about: About
    row_ids: RowIds | None = None  # [rows]: what rows of the frames of a sequence are the same; None: nothing is known
    is_solved_again: bool = False  # what its source says was not exact to the last digits

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.costs.shape

    def fingerprint(self) -> tuple[int, int]:
        """Upper and lower half of a hash of its shape and costs: the same for equal costs in the same format."""
        digest = xxhash.xxh3_128(np.array(self.costs.shape, "<i8").tobytes())
        digest.update(np.ascontiguousarray(self.costs, dtype="<f8").data)
        whole = digest.intdigest()
        return whole >> 64, whole & (2**64 - 1)


@dataclass(frozen=True, slots=True)
class Stated:
    """What a record says of its answer."""

    columns: Columns
    u: Duals
    v: Duals
    cost: float


def checked_costs(costs: NDArray[Any], dtype: str) -> Costs:
    """The matrix in the number format of a store. `RecordError` unless each cost is finite, or +inf: infeasible."""
    if costs.ndim != 2 or 0 in costs.shape:
        raise RecordError(f"its shape is {list(costs.shape)}, and an instance has rows and columns")
    with np.errstate(over="ignore"):
        kept = np.ascontiguousarray(costs, dtype=dtype)
    is_wrong = np.isnan(kept) | np.isneginf(kept)
    if is_wrong.any():
        row, column = np.argwhere(is_wrong)[0]
        raise RecordError(f"C[{row},{column}] is {kept[row, column]}, and a cost is finite, or +inf: infeasible")
    if dtype == "float32" and not np.array_equal(np.isposinf(kept), np.isposinf(costs)):
        row, column = np.argwhere(np.isposinf(kept) != np.isposinf(costs))[0]
        raise RecordError(f"C[{row},{column}] is {costs[row, column]}, which float32 cannot hold")
    return kept


def solved(costs: Costs, about: About, *, again: bool = False) -> Instance:
    """Solve an instance exactly. `RecordError` if it has no assignment."""
    try:
        columns, u, v, optimum = solve_exactly(costs)
    except InfeasibleError as error:
        raise RecordError(f"it has no assignment of {min(costs.shape)} pairs: {error}") from None
    if breach(costs, columns, u, v):
        u, v = shortest_path_duals(costs, columns)
        if problem := breach(costs, columns, u, v):
            raise RecordError(f"the duals that were solved for prove nothing: {problem}")
    return Instance(costs, columns, u, v, optimum, about, is_solved_again=again)


def confirmed(costs: Costs, stated: Stated, about: About) -> Instance:
    """Make an instance with the answer that a record states, once checked; `RecordError` says what is wrong with it.

    Duals that prove the assignment optimal are kept, in the fixed gauge. Those that are only nearly feasible and tight,
    as if they had been rounded, are solved for again.
    """
    shape = (costs.shape[0], costs.shape[1])
    if problem := not_an_assignment(shape, stated.columns):
        raise RecordError(f"its assignment is none: {problem}")
    if (len(stated.u), len(stated.v)) != shape:
        raise RecordError(f"it has {len(stated.u)} duals u and {len(stated.v)} v, and its shape is {list(shape)}")
    cost = matched_cost(costs, stated.columns)
    u, v = fix_gauge(stated.u, stated.v)
    exact = breach(costs, stated.columns, u, v)
    found = Instance(costs, stated.columns, u, v, cost, about) if exact is None else solved(costs, about, again=True)
    allowed = _STORED_TO * float(max(np.abs(found.u).max(), np.abs(found.v).max()))
    if cost - found.optimum > min(shape) * tolerance(costs, found.columns, found.u, found.v):
        raise RecordError(f"its assignment costs {cost!r}, and the optimum is {found.optimum!r}")
    if not abs(stated.cost - cost) <= max(min(shape) * allowed, _STORED_TO * abs(cost)):  # nor if it is NaN
        raise RecordError(f"its cost is {stated.cost!r}, and its assignment costs {cost!r}")
    if exact is not None and (problem := breach(costs, stated.columns, u, v, allowed)):
        raise RecordError(f"its duals are not optimal: {problem}")
    return found


def kept_as(instance: Instance, dtype: str) -> Instance:
    """Convert an instance to the number format of a store; what rounds the costs changes their answer."""
    costs = checked_costs(instance.costs, dtype)
    if costs.dtype == instance.costs.dtype:
        return instance
    if np.array_equal(costs, instance.costs):
        return replace(instance, costs=costs)
    return replace(solved(costs, instance.about, again=instance.is_solved_again), row_ids=instance.row_ids)
