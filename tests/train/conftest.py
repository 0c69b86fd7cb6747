"""Checkpoints of a run that nobody trained: one process, or several that take turns."""

from pathlib import Path

import pytest
import torch
from toy_checkpoints import state_of, weights_at

from graphmill.sync.group import Group
from graphmill.train.checkpoint import CheckpointStore

CPU = torch.device("cpu")


class InTurns(Group):
    """Several ranks of one process, each asked after the other: nobody waits."""

    def barrier(self) -> None:
        """Whoever asks has waited already."""

    def gather_numbers(self, numbers: list[int]) -> list[list[int]]:
        """Only rank 0's numbers are looked at."""
        return [numbers] * self.world_size


@pytest.fixture
def make_state():
    return state_of


@pytest.fixture
def run_path(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


@pytest.fixture
def store(run_path: Path) -> CheckpointStore:
    """The store of a run of one rank."""
    return CheckpointStore(run_path / "checkpoints", "planhash", Group(0, 1, CPU))


@pytest.fixture
def said():
    """A list to look at, and a function to report to that appends to it."""
    told: list[tuple[str, str]] = []
    return told, lambda name, problem: told.append((name, problem))


@pytest.fixture
def pair(run_path: Path):
    """The stores of both ranks of a run."""
    return [CheckpointStore(run_path / "checkpoints", "planhash", InTurns(rank, 2, CPU)) for rank in (0, 1)]


@pytest.fixture
def save_pair(pair):
    """Saves with both ranks: rank 1 brings its files before rank 0 seals."""

    def save(steps_done: int, *, keep: bool = False) -> None:
        making = pair[0].folder / f".step_{steps_done:010d}.making"
        making.mkdir(parents=True)
        pair[1].save(weights_at(steps_done), state_of(steps_done, rank=1), parameter_hash=7, keep=keep)
        kept = {path.name: path.read_bytes() for path in making.iterdir()}

        class Rejoining(InTurns):
            """Rank 0 empties the folder first; then rank 1's files are there again."""

            calls = 0

            def barrier(self) -> None:
                self.calls += 1
                if self.calls == 1:
                    for name, content in kept.items():
                        (making / name).write_bytes(content)

        group = Rejoining(0, 2, CPU)
        CheckpointStore(pair[0].folder, "planhash", group).save(
            weights_at(steps_done), state_of(steps_done), parameter_hash=7, keep=keep
        )

    return save
