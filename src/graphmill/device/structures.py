"""The structures that kernels take by value, field for field as `native/shared` and `native/device` declare them."""

import ctypes
from dataclasses import dataclass, field

import torch
from torch import Tensor

from graphmill.base.errors import InvalidInputError
from graphmill.device.driver import address

_MOST_IN_A_ROW = (1 << 31) - 1  # kernels count the edges of a row in 32 bits

_P = ctypes.c_void_p
_I64 = ctypes.c_int64


class RelationStruct(ctypes.Structure):
    """`Relation` of shared/choices.h."""

    _fields_ = (
        ("source", ctypes.c_int), ("target", ctypes.c_int), ("indptr", _P), ("narrow", _P), ("wide", _P),
        ("order", _P), ("weights", _P), ("times", _P),
    )  # fmt: skip


class RuleStruct(ctypes.Structure):
    """`DrawRule` of shared/choices.h."""

    _fields_ = (("fanout", _I64), ("replace", ctypes.c_bool), ("last", ctypes.c_bool))


class RowsStruct(ctypes.Structure):
    """`HopRows` of device/kernels.cu."""

    _fields_ = (("nodes", _P), ("places", _P), ("subgraphs", _P), ("times", _P), ("span", _P), ("room", _I64))


class SpansStruct(ctypes.Structure):
    """`Spans` of device/kernels.cu."""

    _fields_ = (("starts", _P), ("available", _P), ("ends", _P))


class PlacesStruct(ctypes.Structure):
    """`Places` of device/kernels.cu."""

    _fields_ = (
        ("position", _P), ("keys", _P), ("stride", _I64), ("mask", ctypes.c_uint64), ("shift", ctypes.c_int),
    )  # fmt: skip


class SlotsStruct(ctypes.Structure):
    """`NodeSlots` of shared/node_slots.h."""

    _fields_ = (("nodes", _P), ("places", _P), ("mask", ctypes.c_uint64), ("shift", ctypes.c_int))


class OwnRangeStruct(ctypes.Structure):
    """`OwnRange` of shared/node_slots.h."""

    _fields_ = (("storage", _P), ("num_nodes", _I64), ("own_begin", _I64), ("own_end", _I64))


class TablesStruct(ctypes.Structure):
    """`Tables` of device/kernels.cu."""

    _fields_ = (("near", _P), ("far", _P), ("num_near", _I64), ("num_columns", _I64))


class KnownStruct(ctypes.Structure):
    """`KnownEdges` of shared/pairs.h."""

    _fields_ = (("indptr", _P), ("sources", _P), ("times", _P))


class CandidatesStruct(ctypes.Structure):
    """`Candidates` of shared/pairs.h."""

    _fields_ = (("count", _I64), ("weights", _P), ("times", _P))


class NegativesStruct(ctypes.Structure):
    """`Negatives` of shared/pairs.h."""

    _fields_ = (
        ("count", _I64), ("given", _P), ("times", _P), ("numbers", _P), ("key", ctypes.c_uint64),
        ("tries", ctypes.c_int),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceColumns:
    """The in-edges of one type of edge where kernels read them: device memory, or page-locked memory of the host.

    As `sample.columns.Columns` in tensors: rows ascend by source, or by time where edges have times.
    """

    indptr: Tensor  # int64 [num_targets + 1]
    indices: Tensor  # int32 or int64 [num_edges]: sources
    num_sources: int
    weights: Tensor | None = None  # float64 [num_edges], summed up in each row
    times: Tensor | None = None  # int64 [num_edges], ascending in each row
    order: Tensor | None = None  # int64 [num_edges]: the caller's number of each edge; None: as they stand
    source_type: int = 0
    target_type: int = 0
    most_in_edges: int = field(init=False)  # of a node

    def __post_init__(self) -> None:
        self.struct()  # dtypes
        if self.indices.dtype not in (torch.int32, torch.int64):
            raise InvalidInputError(f"indices are {self.indices.dtype}", fix="give int32 or int64")
        degrees = self.indptr.diff()
        most = int(degrees.max()) if len(degrees) else 0
        if most >= _MOST_IN_A_ROW:
            raise InvalidInputError(
                f"a node has {most} in-edges; kernels take rows of at most {_MOST_IN_A_ROW - 1}",
                fix="sample on the CPU",
            )
        object.__setattr__(self, "most_in_edges", most)

    @property
    def num_targets(self) -> int:
        """Rows."""
        return len(self.indptr) - 1

    def struct(self) -> RelationStruct:
        """Struct that kernels take."""
        is_narrow = self.indices.dtype == torch.int32
        return RelationStruct(
            self.source_type,
            self.target_type,
            address(self.indptr, torch.int64),
            address(self.indices if is_narrow else None),
            address(None if is_narrow else self.indices),
            address(self.order, torch.int64),
            address(self.weights, torch.float64),
            address(self.times, torch.int64),
        )


@dataclass(frozen=True, slots=True)
class HopRule:
    """How many in-edges of a row a hop takes, and which."""

    fanout: int  # at most this many; -1: all
    replace: bool = False  # each time among all
    last: bool = False  # among the latest `fanout`

    def struct(self) -> RuleStruct:
        """Struct that kernels take."""
        return RuleStruct(self.fanout, self.replace, self.last)
