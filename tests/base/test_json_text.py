"""JSON that others wrote."""

import json

import pytest

from graphmill.base.json_text import parse_json

BRACKETS = {"lists": ("[", "]"), "objects": ('{"a":', "}")}


@pytest.mark.parametrize("kind", BRACKETS)
@pytest.mark.parametrize("levels", [201, 500, 200_000])
def test_what_no_reader_could_follow_is_no_json(kind, levels):
    opening, closing = BRACKETS[kind]
    text = opening * levels + "1" + closing * levels
    for given in (text, text.encode()):
        with pytest.raises(ValueError, match="nested too deep"):
            parse_json(given)


def test_many_brackets_that_are_not_deep_are_read():
    value = [[number] for number in range(1000)]
    assert parse_json(json.dumps(value)) == value
    assert parse_json("[" * 150 + "]" * 150)
