"""Slurm 24.11, of Debian trixie, for the slow tests that ask for it: the fixture `trixie`.

It is unpacked into the user's cache by the first test that wants it, and found there by the next session. Where it
cannot be had (no network, no apt, no overlay file system) they are skipped with the reason.
"""

import pytest

from graphmill.base.errors import UserError
from graphmill_devcluster.description import Description
from graphmill_devcluster.releases import install, root_of, version_of
from graphmill_devcluster.requirements import why_not

SUITE = "trixie"


@pytest.fixture(scope="session")
def trixie() -> str:
    """Its version, as its own programs say it: `slurm-wlm 24.11.5`."""
    root = root_of(SUITE)
    if not root.is_dir():
        try:
            install(SUITE)
        except UserError as error:
            pytest.skip(f"Slurm of Debian {SUITE} cannot be had: {error.message}")
    refusal = why_not(Description(slurm_root=root))
    if refusal:
        pytest.skip(refusal)
    return version_of(root)
