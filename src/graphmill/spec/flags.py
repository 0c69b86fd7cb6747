"""Short flags for the dotted overrides that users type most: `--batch_size 512` is `-O train.batch_size=512`.

They are those of the GraphSAGE sync-ablation scripts (docs/coming-from.md), whose command works here with only the
entry point changed. Both `--batch_size` and `--batch-size` are read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from graphmill.base.errors import UserError
from graphmill.base.names import did_you_mean
from graphmill.spec.synonyms import ALSO_CALLED

SHORT_FLAGS: Final = {
    "epochs": "train.epochs",
    "batch_size": "train.batch_size",
    "num_neighbors": "train.num_neighbors",
    "hidden_channels": "model.hidden_channels",
    "num_layers": "model.num_layers",
    "dropout": "model.dropout",
    "lr": "train.optimizer.lr",
    "weight_decay": "train.optimizer.weight_decay",
    "seed": "train.seed",
    "sync_every": "train.sync.every",
    "sync_scheme": "train.sync.scheme",
    "max_steps": "train.max_steps",
    "memory_budget": "train.batch.memory",
}
_WITH_VALUE: Final = ("dataset_root", "logs_root", "run_id")
_LIMITS: Final = {"max_steps": "train.epochs", "epochs": "train.max_steps"}


@dataclass(frozen=True, slots=True)
class ShortFlags:
    """The short flags in a command line, and the rest of it."""

    overrides: tuple[str, ...]
    implied: tuple[str, ...]  # weaker than an override: `--max_steps` alone lifts the recipe's limit on epochs
    rest: tuple[str, ...]

    def over(self, overrides: Sequence[str]) -> list[str]:
        """All overrides: the implied ones only if `overrides` does not set the same key."""
        given = {text.partition("=")[0].strip() for text in (*overrides, *self.overrides)}
        implied = [text for text in self.implied if text.partition("=")[0] not in given]
        return [*implied, *self.overrides, *overrides]


@dataclass(frozen=True, slots=True)
class TrainRequest:
    """The command line of `python -m graphmill.train`, which torchrun starts once per rank."""

    experiment: str | None
    overrides: tuple[str, ...]
    dataset_root: Path | None
    logs_root: Path
    run_id: str | None
    resume: bool


def split_short_flags(args: Sequence[str]) -> ShortFlags:
    """Pick the short flags out of a command line; everything else stays in `rest`, in order."""
    found: dict[str, str] = {}
    rest: list[str] = []
    queue = list(args)
    while queue:
        word = queue.pop(0)
        if word == "--":
            rest += [word, *queue]
            break
        name, value = _parts(word)
        if name not in SHORT_FLAGS:
            rest.append(word)
            continue
        if name in found:
            raise UserError(f"--{name} is given twice", fix="give it once")
        found[name] = _fanouts(value, queue) if name == "num_neighbors" else _value(name, value, queue)
    return short_flags(found, rest)


def short_flags(given: Mapping[str, str], rest: Sequence[str] = ()) -> ShortFlags:
    """Turn short flags, each name with its value as YAML, into overrides."""
    implied = tuple(f"{_LIMITS[name]}=null" for name in given if name in _LIMITS)
    overrides = tuple(f"{SHORT_FLAGS[name]}={value}" for name, value in given.items())
    return ShortFlags(overrides, implied, tuple(rest))


def parse_train_request(args: Sequence[str]) -> TrainRequest:
    """Read the command line of `python -m graphmill.train [EXPERIMENT] [-O key=value …] [short flags]`."""
    flags = split_short_flags(args)
    experiments: list[str] = []
    overrides: list[str] = []
    single: dict[str, str] = {}
    queue = ["--override" if word == "-O" else word for word in flags.rest]
    while queue:
        word = queue.pop(0)
        name, value = _parts(word)
        if not word.startswith("-"):
            experiments.append(word)
        elif name == "override":
            overrides.append(_value(name, value, queue))
        elif name in _WITH_VALUE:
            single[name] = _value(name, value, queue)
        elif word == "--resume":
            single["resume"] = "yes"
        else:
            raise unknown_flag(word, (*_WITH_VALUE, "override", "resume"))
    if len(experiments) > 1:
        raise UserError(f"two experiments are named: {' and '.join(experiments[:2])}", fix="name one")
    root = single.get("dataset_root")
    return TrainRequest(
        experiment=experiments[0] if experiments else None,
        overrides=tuple(flags.over(overrides)),
        dataset_root=None if root is None else Path(root),
        logs_root=Path(single.get("logs_root", "logs")),
        run_id=single.get("run_id"),
        resume="resume" in single,
    )


def unknown_flag(word: str, others: Sequence[str], command: str = "graphmill train") -> UserError:
    """The error for a flag that is neither short for an override nor one of `others` (without dashes)."""
    name, _ = _parts(word)
    given, key = word.partition("=")[0], ALSO_CALLED.get(name)
    if key is not None:
        short = next((f"--{flag} …" for flag, dotted in SHORT_FLAGS.items() if dotted == key), f"-O {key}=…")
        return UserError(f"{given} is called {key}", fix=f"write {short}")
    known = [f"--{flag}" for flag in (*SHORT_FLAGS, *others)]
    return UserError(
        f"{given} is not a flag of this command; {did_you_mean(f'--{name}', known)}",
        fix=f"`{command} --help` lists them all; any other key is given as -O KEY=VALUE",
    )


def _parts(word: str) -> tuple[str, str | None]:
    """`--batch-size=4` → ("batch_size", "4"); an empty name for what is not a flag."""
    if not word.startswith("--"):
        return "", None
    name, equals, value = word[2:].partition("=")
    return name.replace("-", "_"), value if equals else None


def _value(name: str, given: str | None, queue: list[str]) -> str:
    """The value of a flag, taken off `queue` unless it was given with `=`."""
    if given is not None:
        return given
    if not queue or queue[0].startswith("--"):
        raise UserError(f"--{name} has no value", fix=f"write a value after --{name}")
    return queue.pop(0)


def _fanouts(given: str | None, queue: list[str]) -> str:
    words = [] if given is None else given.replace(",", " ").split()
    while queue and _is_whole(queue[0]):
        words.append(queue.pop(0))
    if not words or not all(_is_whole(word) for word in words):
        raise UserError("--num_neighbors needs whole numbers", fix="write, for example, --num_neighbors 25 10")
    return f"[{', '.join(words)}]"


def _is_whole(word: str) -> bool:
    digits = word.removeprefix("-")
    return digits.isascii() and digits.isdecimal()
