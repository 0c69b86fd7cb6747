"""Another user of this machine, with a uid of its own: what belongs to the first is not theirs to write."""

import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

UID = 54321


@pytest.fixture
def shared_place() -> Iterator[Path]:
    """A folder that everybody may write to and nobody else's files be deleted from, as /tmp; skipped without root."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    place = Path(tempfile.mkdtemp(prefix="shared-place-"))
    place.chmod(0o1777)
    yield place
    shutil.rmtree(place)


def as_second_user(act: Callable[[], object]) -> None:
    """Call it in a process of that user's; what it raises fails the test here."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 0
        try:
            os.setgroups([])
            os.setgid(UID)
            os.setuid(UID)
            act()
        except BaseException:  # noqa: BLE001  # the test fails with it
            status = 1
            os.write(writer, traceback.format_exc()[-4000:].encode())
        sys.stdout.flush()
        os._exit(status)
    os.close(writer)
    with os.fdopen(reader) as said:
        told = said.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, told
