"""The order of cells, whatever is in them. Without polars, which a comparison of runs does not need."""

import math

Value = str | int | float | bool | None


def sort_key(value: Value) -> tuple[int, float, str]:
    """Key that sorts empty cells first, then numbers by value, then text."""
    if value is None:
        return (0, 0.0, "")
    try:
        number = float(value)
    except ValueError:
        return (2, 0.0, str(value))
    return (1, number, str(value)) if math.isfinite(number) else (2, 0.0, str(value))
