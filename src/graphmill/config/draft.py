"""A file's values with overrides laid over them, not yet checked; the origin of every value is kept."""

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from graphmill.base.errors import UserError
from graphmill.config.problems import KeyPath, Problem, dotted
from graphmill.config.yaml_text import Document, parse_value

_NAME = re.compile(r"^[A-Za-z0-9_-]+$")


@dataclass(slots=True)
class Draft:
    """The values given so far."""

    value: dict[str, Any]
    origins: dict[KeyPath, str]  # "file:line", or the override as given
    problems: list[Problem] = field(default_factory=list)
    flag: str = "-O"  # how an override is given, for messages

    @classmethod
    def of(cls, document: Document) -> "Draft":
        """Begin with the values of a file."""
        origins = {path: f"{document.source}:{line}" for path, line in document.lines.items()}
        return cls(copy.deepcopy(document.value), origins)

    def where(self, path: KeyPath, *, otherwise: str) -> str:
        """The origin of the value at `path`, or of a value in it, or of the section that holds it."""
        within = [origin for known, origin in self.origins.items() if known[: len(path)] == path]
        if path and path not in self.origins and within:
            return within[0]
        for length in range(len(path), 0, -1):
            if path[:length] in self.origins:
                return self.origins[path[:length]]
        return otherwise

    def is_overridden(self, path: KeyPath) -> bool:
        """Whether the value at `path`, or the section that holds it, was given by an override."""
        return self.where(path, otherwise="").startswith(f"{self.flag} ")

    def at(self, path: KeyPath) -> Any:  # noqa: ANN401  # any plain value
        """The value at `path` of mappings; None if there is none."""
        return _at(self.value, path)

    def override(self, text: str) -> None:
        """Lay `train.sync.every=4` over the draft. What is wrong with it is kept as a problem."""
        where = f"{self.flag} {text}"
        parsed = self._parsed(text, where)
        if parsed is None:
            return
        path, value = parsed
        if not (self._is_free(path, value, where) and self._may_set(path, where)):
            return
        section = self.value
        for name in path[:-1]:
            if section.get(name) is None:
                section[name] = {}
            section = section[name]
        for stale in [known for known in self.origins if known[: len(path)] == path]:
            del self.origins[stale]
        section[path[-1]] = value
        self.origins[path] = where

    def _parsed(self, text: str, where: str) -> tuple[tuple[str, ...], Any] | None:
        key, equals, written = text.partition("=")
        names = tuple(key.strip().split("."))
        if not equals or not all(_NAME.match(name) for name in names):
            self._problem(
                where,
                "is not of the form key=value with a dotted key",
                f"write, for example, {self.flag} {self._example()}",
            )
            return None
        if not written.strip():
            self._problem(
                where, f"gives {key} no value", f"write {key}=null to unset it, or {key}='\"\"' for empty text"
            )
            return None
        try:
            return names, parse_value(written, source=where)
        except UserError as error:
            what = re.sub(
                r"^[0-9:]*\s*", "", error.message.removeprefix(where)
            )  # the line number of a single line is not informative
            self.problems.append(Problem(where, what, error.fix))
            return None

    def _is_free(self, path: tuple[str, ...], value: object, where: str) -> bool:
        """Whether no earlier override would be silently dropped."""
        for known, origin in self.origins.items():
            given_before = origin.startswith(f"{self.flag} ") and known[: len(path)] == path
            if given_before and not (known == path and _at(self.value, path) == value):
                self._problem(
                    where,
                    f"contradicts {origin}, given before it",
                    "give each key once, a whole section before the keys in it",
                )
                return False
        return True

    def _may_set(self, path: tuple[str, ...], where: str) -> bool:
        for length in range(1, len(path)):
            section = _at(self.value, path[:length])
            if section is not None and not isinstance(section, Mapping):
                name = dotted(path[:length])
                self._problem(
                    where, f"sets a key of {name}, but {name} holds a value and no keys", f"set {name} itself"
                )
                return False
        return True

    def _example(self) -> str:
        return "train.sync.every=4" if self.flag == "-O" else "seed=4"

    def _problem(self, where: str, what: str, fix: str) -> None:
        self.problems.append(Problem(where, what, fix))


def _at(value: Any, path: KeyPath) -> Any:  # noqa: ANN401  # any plain value
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
