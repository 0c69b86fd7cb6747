"""Colours, markers and words of all figures. The colours can be told apart without red or green vision."""

from graphmill.report.chart import Marker
from graphmill.spec.kinds.kind import AnyKind

MARKERS: tuple[Marker, ...] = ("circle", "square", "triangle", "diamond", "down", "pentagon")

OKABE_ITO = ("0072B2", "D55E00", "009E73", "CC79A7", "E69F00", "56B4E9")
"""Okabe and Ito 2008, without yellow and black; for things without an order, such as schemes."""

INK = "222222"
FAINT = "8A8A8A"
WARNING = "B00020"
SYNTHETIC = "synthetic data"

_SCHEMES = {"deferred_allreduce": "deferred all-reduce", "local_sgd": "local SGD", "diloco": "DiLoCo"}
_SCHEME_PLACES = {name: place for place, name in enumerate(_SCHEMES)}
_AXES = {
    "global_steps": "steps, all ranks together",
    "measured_mib_cum": "payload handed to collectives per rank, measured (MiB)",
    "interface_mib_cum": "measured traffic on the host's interface (MiB)",
    **{f"modelled_mib_cum_{p}": f"modelled communication per rank (MiB, {p})" for p in ("fp16", "fp32", "fp64")},
}


def ink_on(colour: str) -> str:
    """The colour of letters on a ground of `colour`: white where that is dark."""
    red, green, blue = (int(colour[place : place + 2], 16) for place in (0, 2, 4))
    return "FFFFFF" if 0.299 * red + 0.587 * green + 0.114 * blue < 140 else INK


def scheme_words(scheme: str | None) -> str:
    """A scheme as a reader of a paper knows it."""
    return _SCHEMES.get(scheme or "", shortened(scheme or "scheme not recorded"))


def scheme_place(scheme: str | None) -> tuple[int, str]:
    """Sort key: the known schemes in their usual order, then others by name."""
    return _SCHEME_PLACES.get(scheme or "", len(_SCHEME_PLACES)), scheme or ""


def shortened(name: str, most: int = 36) -> str:
    """A name that leaves room for a figure next to it."""
    return name if len(name) <= most else f"{name[: most - 1]}…"


def axis_words(kind: AnyKind, column: str) -> str:
    """Label of the axis that shows a column of a task's metrics.csv."""
    if column in _AXES:
        return _AXES[column]
    known = kind.columns.get(column)
    unit = f" ({known.unit})" if known and known.unit else ""
    return f"{_measure_words(kind, column) or column}{unit}"


def _measure_words(kind: AnyKind, column: str) -> str:
    words = {f"val_{measure.name}": f"validation {measure.words}" for measure in kind.measures}
    best = {f"best_{name}": f"best {text}" for name, text in words.items()}
    return (words | best).get(column, "")


def ordered_colours(count: int) -> list[str]:
    """Colours for things that have an order, such as k: viridis, without its pale end."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    places = [0.82 * place / max(count - 1, 1) for place in range(count)]
    return [to_hex(colormaps["viridis"](place)).removeprefix("#") for place in places]
