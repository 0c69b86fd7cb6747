"""What a source holds and no store here keeps."""

import logging
from collections.abc import Iterable

_log = logging.getLogger(__name__)


def tell_unused(place: str, names: Iterable[str]) -> None:
    """Log what is not kept: its author may think that a model sees it."""
    if unused := sorted(names):
        _log.info(f"not used: {', '.join(unused)} of {place}")
