"""Fetch raw files, each whole or absent. A failure names `--from` and the layout it expects."""

import logging
import shutil
import urllib.error
import urllib.request
import zipfile
from collections.abc import Sequence
from http.client import HTTPException
from pathlib import Path

from graphmill.base.errors import UserError
from graphmill.base.files import replacing
from graphmill.graph.archive import refuse_inflated
from graphmill.graph.arrays import UNREADABLE, reason

_log = logging.getLogger(__name__)

_TIMEOUT_S = 30
_CHUNK_BYTES = 2**20


def fetch(url: str, path: Path, *, layout: str) -> Path:
    """Download `url` to `path`, unless it is there."""
    if path.is_file():
        return path
    _log.info(f"downloading {url}")
    try:
        with replacing(path) as temporary, urllib.request.urlopen(url, timeout=_TIMEOUT_S) as response:
            with temporary.open("wb") as file:
                shutil.copyfileobj(response, file, _CHUNK_BYTES)
            _check_length(temporary, response.headers.get("Content-Length"))
    except (OSError, HTTPException, EOFError, ValueError) as error:
        cause = error.reason if isinstance(error, urllib.error.URLError) else error
        raise UserError(
            f"{url} could not be downloaded: {cause}",
            fix=f"download it where there is a network and give its folder with --from PATH; expected: {layout}",
        ) from error
    return path


def unpack(archive: Path, folder: Path, members: Sequence[str]) -> None:
    """Take these members, by their own names, out of a zip archive into `folder`."""
    try:
        with zipfile.ZipFile(archive) as opened:
            refuse_inflated(archive, opened.infolist())
            for member in members:
                with (
                    replacing(folder / member) as temporary,
                    opened.open(member) as source,
                    temporary.open("wb") as file,
                ):
                    shutil.copyfileobj(source, file, _CHUNK_BYTES)
    except UNREADABLE as error:
        raise UserError(
            f"{archive} cannot be unpacked: {reason(error)}", fix=f"delete {archive} and prepare again, or use --from"
        ) from error


def _check_length(path: Path, length: str | None) -> None:
    num_bytes = path.stat().st_size
    if length is not None and int(length) != num_bytes:
        raise EOFError(f"{num_bytes} of {length} bytes arrived")
