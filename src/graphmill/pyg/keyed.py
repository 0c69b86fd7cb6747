"""What graphmill's loaders add to PyG's: batches that are functions of (seed, epoch, step), and a position."""

import inspect
import weakref
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

import torch

from graphmill.base.arguments import flag, whole_number
from graphmill.base.errors import InvalidInputError
from graphmill.base.names import did_you_mean
from graphmill.pyg.batches import Places, SeedBatch, SeedBatches, checked_state
from graphmill.pyg.fill import can_fill, filled
from graphmill.pyg.shared import clear_finished_workers, send_in_segments
from graphmill.sample.prefetch import prefetch as ahead

OF_DATALOADER: Final = frozenset(inspect.signature(torch.utils.data.DataLoader).parameters) | {
    "dataset",
    "collate_fn",
    "custom_cls",
    "input_id",
}
"""Options that PyG's loaders hand on, and two of their own that they do not name."""


class KeyedLoader:
    """Keyed batches, a state, a thread that works ahead.

    A mix-in before a loader of PyG's, whose `__init__` has run when `_begin` is called.
    """

    _batches: SeedBatches
    _prefetch: int
    _epoch: int  # of the next batch that is handed out
    _step: int
    _is_under_way: bool

    def _begin(self, count: int, seed: int, prefetch: int, given: dict[str, Any]) -> None:
        """`count`: seeds. `given`: options of DataLoader, checked."""
        of_user = given.get("batch_sampler") is not None or given.get("sampler") is not None
        self._batches = SeedBatches(
            count,
            1 if of_user else given.get("batch_size", 1),
            seed=whole_number("seed", seed, least=0, most=2**63 - 1),
            shuffle=bool(given.get("shuffle")),
            drop_last=bool(given.get("drop_last")),
            of_user=self.batch_sampler if of_user else None,  # type: ignore[attr-defined]  # DataLoader's
        )
        self._prefetch = whole_number("prefetch", prefetch, least=0)
        self._epoch = self._step = 0
        self._is_under_way = False
        # DataLoader lets nobody set these once it is made; it has no other way to give a batch a key.
        self.__dict__.update(dataset=Places(count), batch_sampler=self._batches)

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Any]:
        if self._is_under_way:
            self._epoch, self._step = self._epoch + 1, 0
        epoch, first = self._epoch, self._step
        self._batches.epoch, self._batches.step = epoch, first
        in_process = self.num_workers == 0  # type: ignore[attr-defined]  # DataLoader's
        made = ahead(super().__iter__, self._prefetch if in_process else 0)  # type: ignore[misc]  # DataLoader's
        with closing(made) as batches:
            for step, batch in enumerate(batches, start=first):
                self._is_under_way = step + 1 < len(self)
                self._epoch, self._step = (epoch, step + 1) if self._is_under_way else (epoch + 1, 0)
                yield batch
        if not in_process:
            clear_finished_workers()

    def _get_iterator(self) -> Any:  # noqa: ANN401  # DataLoader's, or PyG's around it
        """Make the iterator of an epoch; with persistent workers, of all epochs.

        A loader is in a cycle of references (it keeps `collate_fn`), so the garbage collector ends it. Were its
        iterator in the cycle, its queues would end first, and each worker would be waited for in vain (5 s).
        """
        made = super()._get_iterator()  # type: ignore[misc]
        if self.persistent_workers:  # type: ignore[attr-defined]
            of_torch = getattr(made, "iterator", made)
            of_torch._collate_fn = None  # the workers have it
            weakref.finalize(self, of_torch._shutdown_workers)
        return made

    def state_dict(self) -> dict[str, int]:
        """The loader's position: the next batch it would yield."""
        return {"epoch": self._epoch, "step": self._step, "seed": self._batches.seed}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue from the position of another loader with the same arguments."""
        self._epoch, self._step = checked_state(state, self._batches)
        self._is_under_way = False

    def collate_fn(self, index: Any) -> Any:  # noqa: ANN401  # PyG's name
        """Sample the subgraph of a batch of nodes."""
        seeds, key = self._of_places(index)
        out = self.node_sampler.sample_from_nodes(seeds, key=key)  # type: ignore[attr-defined]  # PyG's
        return self.filter_fn(out) if self.filter_per_worker else out  # type: ignore[attr-defined]

    def filter_fn(self, out: Any) -> Any:  # noqa: ANN401  # PyG's name; a SamplerOutput or HeteroSamplerOutput
        """The batch of a subgraph."""
        data = self.data  # type: ignore[attr-defined]  # PyG's, as the two below
        if not can_fill(data):
            return super().filter_fn(out)  # type: ignore[misc]
        if self.transform_sampler_output:  # type: ignore[attr-defined]
            out = self.transform_sampler_output(out)  # type: ignore[attr-defined]
        batch = filled(data, out)
        self._name_seeds(batch, out.metadata)
        return batch if self.transform is None else self.transform(batch)  # type: ignore[attr-defined]

    def _name_seeds(self, batch: Any, metadata: Any) -> None:  # noqa: ANN401  # what PyG's loader says of them
        input_id, times = metadata[:2]
        kind = self.input_data.input_type  # type: ignore[attr-defined]
        store = batch if kind is None else batch[kind]
        store.input_id, store.seed_time, store.batch_size = input_id, times, input_id.size(0)

    def _of_places(self, index: Any) -> tuple[Any, int | None]:  # noqa: ANN401  # a SeedBatch, or places
        """The seeds of a batch, and its key; where a user calls the loader with places, none."""
        send_in_segments()
        if isinstance(index, SeedBatch):
            return self.input_data[torch.as_tensor(index.places)], index.key  # type: ignore[attr-defined]  # PyG's
        return self.input_data[index], None  # type: ignore[attr-defined]


def checked_options(given: dict[str, Any]) -> dict[str, Any]:
    """Options of DataLoader, without what `KeyedLoader` gives in their place."""
    if given.get("generator") is not None:
        raise InvalidInputError(
            "generator: batches are a function of (seed, epoch, step)", fix="give seed=1 in its place"
        )
    for name in given:
        if name not in OF_DATALOADER:
            raise InvalidInputError(f"DataLoader takes no {name}", fix=did_you_mean(name, sorted(OF_DATALOADER)))
    checked = {name: value for name, value in given.items() if name not in ("generator", "dataset", "collate_fn")}
    if given.get("batch_sampler") is None:
        checked["batch_size"] = whole_number("batch_size", given.get("batch_size", 1))
    for name in ("shuffle", "drop_last"):
        if given.get(name) is not None:
            checked[name] = flag(name, given[name])
    return checked
