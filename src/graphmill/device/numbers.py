"""Which number each node has in a batch: the order in which they are first met, whatever order threads come in."""

import torch
from torch import Tensor

from graphmill.base.errors import InvalidInputError
from graphmill.device.driver import address
from graphmill.device.kernels import DeviceKernels, OfferedEdges
from graphmill.device.structures import DeviceColumns, PlacesStruct

_UNKNOWN = -1  # as an unsigned number, above all others: the least wins
_MOST_SLOTS = 1 << 31


def table_size(count: int) -> int:
    """Slots of a hash table for `count` keys: a power of two, at most half full."""
    return 1 << (2 * count + 1).bit_length()


class NodeNumbers:
    """Numbers of nodes of one type; 4 bytes for each node of the graph, kept from batch to batch."""

    def __init__(self, kernels: DeviceKernels, num_nodes: int) -> None:
        self._kernels = kernels
        self.num_nodes = num_nodes
        self.position = torch.full((num_nodes,), _UNKNOWN, dtype=torch.int32, device=kernels.device)

    def struct(self) -> PlacesStruct:
        """Struct that kernels take."""
        return PlacesStruct(address(self.position), None, self.num_nodes, 0, 0)

    def make_room(self, most_nodes: int, nodes: Tensor, subgraphs: Tensor, count: Tensor) -> None:
        """Do nothing: there is room for all nodes."""

    def place_seeds(self, seeds: Tensor, subgraphs: Tensor | None, first: int) -> None:
        """Seeds [n], int64, get the numbers from `first` on; of one that stands twice the first counts."""
        count = len(seeds)
        self._kernels.driver.launch("place_seeds", count, self.struct(), seeds, subgraphs, first, count)

    def clear(self, nodes: Tensor, count: Tensor, room: int) -> None:
        """Forget the nodes of a batch; `count`, int64 [1], of `nodes`."""
        self._kernels.driver.launch("forget", room, self.struct(), nodes, count, room)

    def meet(
        self,
        columns: DeviceColumns,
        offered: OfferedEdges,
        *,
        edges: Tensor,
        targets: Tensor | None,
        target_subgraphs: Tensor | None,
        edge_span: Tensor,
        nodes: Tensor,
        subgraphs: Tensor | None,
        num_nodes: Tensor,
        indices: Tensor,
    ) -> Tensor:
        """Give the sources of a hop's edges their numbers, new ones the next.

        Args:
            columns: the topology.
            offered: the hop's.
            edges: int64: positions of the batch's edges in the columns.
            targets: int32: nodes of the batch that they lead to; asked for where there are subgraphs.
            target_subgraphs: int32, of the nodes that edges lead to.
            edge_span: int64 [2]: the hop's edges.
            nodes: int64: the batch's nodes of this type; new ones are appended.
            subgraphs: int32: theirs, likewise.
            num_nodes: int64 [1]: how many there are before.
            indices: int32: the number of each edge's source is written here.

        Returns:
            How many there are then: int64 [1], on the device.
        """
        room, launch, places = offered.room, self._kernels.driver.launch, self.struct()
        sources, slots, is_first = (self._kernels.empty(room, torch.int32) for _ in range(3))
        launch(
            "meet", room, columns.struct(), places, edges, targets, target_subgraphs, edge_span, num_nodes, room,
            sources, slots,
        )  # fmt: skip
        launch("is_first", room, places, slots, edge_span, num_nodes, room, is_first)
        ranks = torch.cumsum(is_first, 0, dtype=torch.int32)
        launch(
            "settle", room, places, sources, slots, is_first, ranks, targets, edge_span, num_nodes, room, nodes,
            subgraphs, target_subgraphs,
        )  # fmt: skip
        launch("label", room, places, slots, edge_span, room, indices)
        return num_nodes + ranks[-1:] if room else num_nodes.clone()


class SubgraphNodeNumbers(NodeNumbers):
    """Where each seed has a subgraph of its own: numbers of (subgraph, node), in a hash table."""

    def __init__(self, kernels: DeviceKernels, num_nodes: int) -> None:
        self._kernels = kernels
        self.num_nodes = num_nodes
        self._resize(table_size(0))

    def struct(self) -> PlacesStruct:
        """Struct that kernels take."""
        bits = self._size.bit_length() - 1
        return PlacesStruct(address(self.position), address(self._keys), self.num_nodes, self._size - 1, 64 - bits)

    def make_room(self, most_nodes: int, nodes: Tensor, subgraphs: Tensor, count: Tensor) -> None:
        """Make room for the nodes of a batch; the host waits if the table must grow while there are some.

        Args:
            most_nodes: of the batch.
            nodes: int64: those that it has.
            subgraphs: int32: theirs.
            count: int64 [1]: how many they are.
        """
        size = table_size(most_nodes)
        if size <= self._size:
            return
        if size > _MOST_SLOTS:
            raise InvalidInputError(f"a batch may hold {most_nodes} nodes", fix="make smaller batches")
        self._resize(size)
        known = int(count)
        self.place_seeds(nodes[:known], subgraphs[:known], 0)

    def _resize(self, size: int) -> None:
        self._size = size
        self._keys = torch.full((size,), -1, dtype=torch.int64, device=self._kernels.device)
        self.position = torch.full((size,), _UNKNOWN, dtype=torch.int32, device=self._kernels.device)

    def clear(self, nodes: Tensor, count: Tensor, room: int) -> None:
        """Forget all nodes."""
        del nodes, count, room
        self._keys.fill_(-1)
        self.position.fill_(_UNKNOWN)
