"""JSON that others wrote: what cannot be read is a ValueError, whatever is wrong with it."""

import json
from typing import Any, Final

_MOST_LEVELS: Final = 200  # as pydantic's own reader


def parse_json(text: str | bytes | bytearray) -> Any:  # noqa: ANN401  # any JSON value
    """The value that `text` holds. ValueError if it is not JSON, or is nested so deep that no reader could follow.

    >>> parse_json('{"a": [1]}')
    {'a': [1]}
    """
    try:
        value = json.loads(text)  # noqa: TID251  # the one place
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    if _brackets(text) > _MOST_LEVELS and _is_deep(value):
        raise ValueError("it is nested too deep")
    return value


def _brackets(text: str | bytes | bytearray) -> int:
    if isinstance(text, str):
        return text.count("[") + text.count("{")
    return text.count(b"[") + text.count(b"{")


def _is_deep(value: Any) -> bool:  # noqa: ANN401  # any JSON value
    """Whether a text has more levels than are read, found without recursion."""
    level = [value]
    for _ in range(_MOST_LEVELS):
        level = [
            child
            for each in level
            if isinstance(each, dict | list)
            for child in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return False
    return True
