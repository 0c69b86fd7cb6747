"""Where may I write: the folder that holds the prepared datasets, and the one of the person's configuration."""

from collections.abc import Mapping
from pathlib import Path

from graphmill.base.errors import UserError


def dataset_root(option: str | Path | None, environ: Mapping[str, str]) -> Path:
    """`--dataset-root`, else GRAPHMILL_DATA_ROOT, else PYG_DATA_ROOT, else $SCRATCH/graphmill, else ./data.

    The folder need not exist yet; a file in its place is refused.
    """
    source, root = _first_given(option, environ)
    root = root.expanduser()
    if root.exists() and not root.is_dir():
        raise UserError(f"the dataset root {root} (from {source}) is a file, and datasets are folders in it", fix=_FIX)
    return root


def config_folder(environ: Mapping[str, str]) -> Path | None:
    """`$XDG_CONFIG_HOME/graphmill`, else `~/.config/graphmill`; None where no home is known."""
    given = environ.get("XDG_CONFIG_HOME")
    try:
        return (Path(given) if given else Path.home() / ".config") / "graphmill"
    except RuntimeError:  # no HOME, and no entry of this user: a container
        return None


_FIX = "give a folder with --dataset-root, or set GRAPHMILL_DATA_ROOT"


def _first_given(option: str | Path | None, environ: Mapping[str, str]) -> tuple[str, Path]:
    if option is not None:
        return "--dataset-root", Path(option)
    for name in ("GRAPHMILL_DATA_ROOT", "PYG_DATA_ROOT"):
        if environ.get(name):
            return name, Path(environ[name])
    if environ.get("SCRATCH"):
        return "SCRATCH", Path(environ["SCRATCH"]) / "graphmill"
    return "the default", Path("data")
