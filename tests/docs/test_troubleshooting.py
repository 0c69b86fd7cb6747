"""The messages that docs/troubleshooting.md quotes are messages of the code.

Quoted are the lines of its `text` blocks and inline code of several words that is no command. A quote is cut where a
value stands (numbers, names in capitals, …); what is left of a clause must occur in one string of the source.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")
COMMANDS = ("graphmill", "scontrol", "sinfo", "srun", "ssh-add", "ssh-copy-id")
VALUE = re.compile(r"\b[A-Z][A-Z_]+\b|\S*\d\S*|…|\([\w.]+=[^)]*\)")
CLAUSES = re.compile(r"(?<=:) |[;,] |→ ")


def quotes() -> list[str]:
    text = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
    blocks = [line for kind, body in FENCE.findall(text) if kind == "text" for line in body.splitlines()]
    spans = INLINE.findall(FENCE.sub("", text))
    inline = [span for span in spans if " " in span and not span.startswith(COMMANDS)]
    return list(dict.fromkeys([*blocks, *inline]))


def constants(quote: str) -> Iterator[list[str]]:
    """Of each clause, what the source must have: pieces of two words or more, and words before a colon."""
    for clause in CLAUSES.split(quote.removeprefix("error: ").removeprefix("warning: ")):
        pieces = [piece.strip(" `()") for piece in VALUE.split(clause)]
        found = [
            piece.rstrip(":") if " " in piece else piece for piece in pieces if " " in piece or piece[1:].endswith(":")
        ]
        if found:
            yield found


@cache
def strings() -> frozenset[str]:
    """Every string of the source, with … for the values of an f-string."""
    found = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                found.add("".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
    return frozenset(found)


@pytest.mark.parametrize("quote", quotes())
def test_a_quoted_message_is_one_of_the_code(quote):
    clauses = list(constants(quote))
    assert clauses, f"{quote}: nothing of it can be looked up; quote more of the message"
    for pieces in clauses:
        assert any(all(piece in text for piece in pieces) for text in strings()), f"no message has {' … '.join(pieces)}"


@pytest.mark.parametrize(
    "quote",
    ["the port was taken meanwhile", "HOST lets us in with none of your keys", "rank 1 of 4 fell over first: x"],
)
def test_a_message_that_is_no_more_is_found(quote):
    assert not all(any(all(piece in text for piece in pieces) for text in strings()) for pieces in constants(quote))
