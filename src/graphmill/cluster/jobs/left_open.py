"""What a probed site profile leaves to its user, with what is known of it here: the account, modules, scratch."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from graphmill.slurm.configuration import Cluster

SCRATCH: Final = ("SCRATCH", "WORK", "PSCRATCH", "CSCRATCH")
"""Variables that sites name their fast shared folder by."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class OpenKey:
    """One key that Slurm does not decide."""

    key: str  # dotted: defaults.account
    about: str  # what is asked for, and what is known of it
    known: str  # what to take where nothing else is said; empty: leave the key out
    example: str  # for the line to fill in, where nothing is known
    is_list: bool = False

    def value_of(self, answer: str) -> Any:  # noqa: ANN401  # of a YAML key
        """The key's value by an answer; raises `ValueError` with what is wrong of it."""
        words = answer.replace(",", " ").split()
        if self.is_list:
            return words
        if len(words) > 1:
            raise ValueError("one word")
        word = words[0].removeprefix("$") if self.key == "scratch" else words[0]
        if self.key == "scratch" and _NAME.fullmatch(word) is None:
            raise ValueError("the name of a variable, such as SCRATCH, not a path")
        return word

    def line(self) -> str:
        """The line of the profile to fill in."""
        value = self.known or self.example
        shown = f"[{', '.join(value.split())}]" if self.is_list else value
        return f"{self.key.rpartition('.')[2]}: {shown}  # {self.about}"


def left_open(cluster: Cluster, profile: Mapping[str, Any], environ: Mapping[str, str]) -> list[OpenKey]:
    """What to ask for. `environ`: of the login node, which has the modules and variables of its user."""
    return [*_account(cluster), *_modules(environ), *([] if "scratch" in profile else _scratch(environ))]


def filled_in(profile: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The profile with answers by dotted key, ahead of what it says of hosts."""
    own = {key.removeprefix("defaults."): value for key, value in values.items() if key.startswith("defaults.")}
    top = {key: value for key, value in values.items() if not key.startswith("defaults.")}
    head = {key: profile[key] for key in ("name", "description", "checked") if key in profile}
    defaults = {**own, **profile.get("defaults", {})}
    return {
        **head,
        **({"defaults": defaults} if defaults else {}),
        **top,
        **{k: v for k, v in profile.items() if k not in {*head, "defaults"}},
    }


def with_lines(text: str, unanswered: Iterable[OpenKey]) -> str:
    """The profile's text with a line to fill in for each of what is open, behind `#`, where it belongs."""
    for each in unanswered:
        if not each.key.startswith("defaults."):
            text += f"# {each.line()}\n"
        elif "\ndefaults:\n" in text:
            text = text.replace("\ndefaults:\n", f"\ndefaults:\n  # {each.line()}\n", 1)
        else:
            text += f"# defaults:\n#   {each.line()}\n"
    return text


def _account(cluster: Cluster) -> list[OpenKey]:
    if cluster.accounts is None:  # nobody keeps any
        return []
    names = ", ".join(sorted(cluster.accounts)) or "none that sacctmgr knows"
    if cluster.default_account is not None:
        about = f"the account that pays; yours: {names}; left out: {cluster.default_account}, Slurm's default of yours"
        return [OpenKey("defaults.account", about, "", cluster.default_account)]
    only = next(iter(cluster.accounts)) if len(cluster.accounts) == 1 else ""
    return [OpenKey("defaults.account", f"the account that pays; yours: {names}", only, "NAME")]


def _modules(environ: Mapping[str, str]) -> list[OpenKey]:
    if not any(environ.get(name) for name in ("LOADEDMODULES", "MODULESHOME", "LMOD_CMD")):
        return []
    loaded = " ".join(environ.get("LOADEDMODULES", "").split(":")).strip()
    about = f"modules that every job loads; loaded here: {loaded or 'none'}"
    return [OpenKey("modules", about, loaded, "python/3.11", is_list=True)]


def _scratch(environ: Mapping[str, str]) -> list[OpenKey]:
    there = [name for name in SCRATCH if environ.get(name)]
    about = "the variable that names the fast shared folder; "
    about += f"set here: {', '.join(f'{name}={environ[name]}' for name in there)}" if there else "none is set here"
    return [OpenKey("scratch", about, there[0] if there else "", SCRATCH[0])]
