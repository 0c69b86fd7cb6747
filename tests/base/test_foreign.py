"""Text of others on its way to a terminal."""

import pytest

from graphmill.base.foreign import printable, quoted, without_advice

HIDDEN = {
    "an escape": "\x1b[2J", "C1": "\x9b2J", "right to left": "\u202e", "an isolate": "\u2066",
    "zero width": "\u200b", "a line separator": "\u2028", "a paragraph separator": "\u2029",
    "half a character": "\ud800",
}  # fmt: skip


@pytest.mark.parametrize("kind", HIDDEN)
def test_what_is_not_seen_is_spelled_out(kind):
    for shown in (printable(f"a{HIDDEN[kind]}b"), quoted(f"a{HIDDEN[kind]}b"), without_advice(f"a{HIDDEN[kind]}b")):
        assert HIDDEN[kind][0] not in shown
        assert "\\" in shown


def test_ordinary_text_stays():
    assert printable("Ärger\tin Zeile 1\nund 2, 字") == "Ärger\tin Zeile 1\nund 2, 字"
