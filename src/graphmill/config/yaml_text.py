"""YAML as experiments are written in: plain values, each with its line. What is not plain is refused, never guessed.

Scalars follow YAML 1.2's core schema (`no` is text, `1e-3` is a number, `010` is text, dates are text). Tags, aliases,
duplicate keys and keys that are not text are refused, as are files that are not small UTF-8 text.
"""

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from graphmill.base.errors import UserError
from graphmill.config.problems import KeyPath, Problem, dotted, refuse

MAX_BYTES: Final = 1 << 20
MAX_DEPTH: Final = 40
MAX_VALUES: Final = 20_000
_MAX_BITS: Final = 63

_TAG = "tag:yaml.org,2002:"
_SCALARS: Final = {
    "null": re.compile(r"^(?:~|null|Null|NULL|)$"),
    "bool": re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"),
    "int": re.compile(r"^[-+]?(?:0|[1-9][0-9_]*)$"),
    "float": re.compile(
        r"^(?:[-+]?(?:(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
    ),
}
_WORD: Final = re.compile(r"^[A-Za-z_][A-Za-z0-9_./-]*$")


@dataclass(frozen=True, slots=True)
class Document:
    """A file's content: a mapping of plain values, and the line of every key."""

    source: str  # the file as the user named it
    value: dict[str, Any]
    lines: dict[KeyPath, int]


def read_document(path: Path, *, holds: str) -> Document:
    """Read the YAML mapping in `path`. `holds` names what is expected in it, for the messages."""
    text = _read_text(path, holds)
    if not text.strip():
        raise UserError(f"{path} is empty", fix=f"write {holds} in it, as YAML, or start from a recipe")
    reader = _Reader(text, str(path))
    value = reader.read()
    if not isinstance(value, dict):
        raise UserError(
            f"{path} holds {_kind(value)}, but {holds} is a mapping of keys to values",
            fix="write `key: value` lines; `graphmill plan --help` shows an example",
        )
    return Document(str(path), value, reader.lines)


def parse_value(text: str, *, source: str) -> Any:  # noqa: ANN401  # any plain YAML value
    """The plain value that `text` writes, as on the right of an override."""
    return _Reader(text, source).read()


def flow_text(value: Any) -> str:  # noqa: ANN401  # any plain value
    """A value in one line, for the right of an override: what `parse_value` reads as this value.

    >>> flow_text({"scheme": "local_sgd", "every": 4, "note": "no: yes"})
    '{scheme: local_sgd, every: 4, note: "no: yes"}'
    """
    if isinstance(value, dict):
        return "{" + ", ".join(f"{flow_text(key)}: {flow_text(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(flow_text, value)) + "]"
    is_word = isinstance(value, str) and _WORD.match(value) and not _is_special(value)
    return str(value) if is_word else json.dumps(value)


def _is_special(text: str) -> bool:
    return any(pattern.match(text) for pattern in _SCALARS.values())


def _read_text(path: Path, holds: str) -> str:
    try:
        if not path.is_file():
            what = "is a folder" if path.is_dir() else "is not a file" if path.exists() else "does not exist"
            raise UserError(f"{path} {what}", fix=f"name a YAML file that holds {holds}")
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(
            f"{str(path)!r} cannot be read: {reason}", fix=f"name a readable YAML file that holds {holds}"
        ) from None
    if len(raw) > MAX_BYTES:
        raise UserError(
            f"{path} is larger than {MAX_BYTES >> 20} MiB, and {holds} never is",
            fix=f"name the file that holds {holds}",
        )
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise UserError(
            f"{path}:{line}: not UTF-8 text (byte {raw[error.start]:#04x})", fix=f"name a text file that holds {holds}"
        ) from None
    if "\0" in text:
        raise UserError(f"{path} is a binary file (it holds NUL bytes)", fix=f"name a text file that holds {holds}")
    return text


class _PlainLoader(yaml.SafeLoader):
    """PyYAML's composer with bounds, and YAML 1.2's scalars."""

    yaml_implicit_resolvers: dict[str, Any] = {  # noqa: RUF012  # PyYAML's own attribute
        None: [(_TAG + name, pattern) for name, pattern in _SCALARS.items()]  # type: ignore[dict-item]
    }

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0
        self._num_values = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:  # noqa: ANN401  # PyYAML's
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(
                problem=f"aliases (*{event.anchor}) are not read here", problem_mark=event.start_mark
            )
        self._depth += 1
        self._num_values += 1
        if self._depth > MAX_DEPTH or self._num_values > MAX_VALUES:
            limit = f"{MAX_DEPTH} levels deep" if self._depth > MAX_DEPTH else f"{MAX_VALUES} values long"
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem=f"more than {limit}", problem_mark=mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


class _Reader:
    """Turns the nodes of one document into plain values and remembers their lines and problems."""

    def __init__(self, text: str, source: str) -> None:
        self._text = text
        self._source = source
        self.lines: dict[KeyPath, int] = {}
        self._problems: list[Problem] = []

    def read(self) -> Any:  # noqa: ANN401  # any plain YAML value
        try:
            self._loader = _PlainLoader(self._text)
            node = self._loader.get_single_node()
        except yaml.YAMLError as error:
            raise _syntax_error(error, self._source) from None
        except RecursionError:
            raise UserError(
                f"{self._source} is nested too deeply", fix="write it as plain sections and lists"
            ) from None
        value = None if node is None else self._plain(node, ())
        refuse(self._problems, self._source)
        return value

    def _plain(self, node: yaml.Node, at: KeyPath) -> Any:  # noqa: ANN401  # any plain YAML value
        self.lines[at] = node.start_mark.line + 1
        kind = node.tag.removeprefix(_TAG)
        if isinstance(node, yaml.MappingNode) and kind == "map":
            return self._mapping(node, at)
        if isinstance(node, yaml.SequenceNode) and kind == "seq":
            return [self._plain(child, (*at, index)) for index, child in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode) and kind in (*_SCALARS, "str"):
            return self._scalar(node, kind, at)
        self._problem(
            at, f"carries the tag {node.tag.replace(_TAG, '!!')}, and only plain values are read", "remove the tag"
        )
        return None

    def _mapping(self, node: yaml.MappingNode, at: KeyPath) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = key_node.value
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag != _TAG + "str":
                self.lines[(*at, str(key))] = line
                self._problem((*at, str(key)), "is not a name, and keys are names", "write the key as a plain word")
                continue
            if key in result:
                first = self.lines[(*at, key)]
                self._problem((*at, key), f"is given twice, in lines {first} and {line}", "keep one of the two")
                continue
            result[key] = self._plain(value_node, (*at, key))
            self.lines[(*at, key)] = line
        return result

    def _scalar(self, node: yaml.ScalarNode, kind: str, at: KeyPath) -> Any:  # noqa: ANN401  # a plain scalar
        try:
            value = self._loader.construct_object(node)
            if isinstance(value, str):
                value.encode("utf-8")
        except (ValueError, yaml.YAMLError):  # digits without end, a lone surrogate, !!int on text
            self._problem(at, f"holds {_shortened(node.value)}, which cannot be read as {kind}", "write a plain value")
            return None
        if isinstance(value, int) and value.bit_length() > _MAX_BITS:
            self._problem(at, f"is {_shortened(node.value)}, which does not fit into 64 bits", "write a smaller number")
        if isinstance(value, float) and not math.isfinite(value):
            self._problem(at, f"is {node.value}, and only finite numbers are read", "write a finite number")
        return value

    def _problem(self, at: KeyPath, what: str, fix: str) -> None:
        where = f"{self._source}:{self.lines[at]}" if at in self.lines else self._source
        self._problems.append(Problem(where, f"{dotted(at)} {what}" if at else what, fix))


def _shortened(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _kind(value: object) -> str:
    return {list: "a list", str: "text", type(None): "nothing"}.get(type(value), "a single value")


def _syntax_error(error: yaml.YAMLError, source: str) -> UserError:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    where = f"{source}:{mark.line + 1}:{mark.column + 1}" if mark else source
    if isinstance(error, yaml.reader.ReaderError):
        code = error.character if isinstance(error.character, int) else ord(error.character)
        return UserError(f"{source} holds the character U+{code:04X}, which YAML does not allow", fix="remove it")
    problem = " ".join(str(part) for part in (getattr(error, "context", None), getattr(error, "problem", None)) if part)
    if "'\\t'" in problem:
        return UserError(f"{where}: tab in the indentation, which YAML does not allow", fix="indent with spaces")
    if "single document" in problem:
        return UserError(f"{where}: a second document begins here", fix="keep one document in a file")
    if "aliases" in problem:
        return UserError(f"{where}: {problem}", fix="write the value out where it is used")
    if "alias" in problem:  # a pattern, such as *speed*
        return UserError(f"{where}: {problem}", fix='put text that begins with * or & into quotes: "*speed*"')
    return UserError(f"{where}: not YAML: {problem or error}", fix="correct this line or the one above it")
