"""How tests are shared out among the workers of pytest-xdist, and in which order.

Tests of one file go to one worker: what a module makes once is made once. Those that ask for the session's real Slurm
are one group, whatever their file, and so are those of a folder whose files share what takes long to make.

The longest groups begin first: a file of three long tests that is begun last would keep one core busy and leave the
others without work. Long are the tests that start processes, so their folders come first; within both kinds, where
there are more tests there is more to do.
"""

import os
from collections import Counter

import pytest
from real_slurm import ALONE, GROUP, TESTS

STARTING_PROCESSES = (GROUP, "integration/", "sample/distributed", "cluster/", "cli/", "docs/")
SHARING = (TESTS / "verify", TESTS / "sample/distributed")


def pytest_configure(config: pytest.Config) -> None:
    config.option.loadscopereorder = False  # of xdist: it would begin with the groups of the most tests


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    groups = {item: group_of(item) for item in items}
    for item, group in groups.items():
        item.add_marker(pytest.mark.xdist_group(group))
    if hasattr(config, "workerinput"):
        sizes = Counter(groups.values())
        items.sort(key=lambda item: (place_of(groups[item]), -sizes[groups[item]], groups[item]))


def group_of(item: pytest.Item) -> str:
    if ALONE in getattr(item, "fixturenames", ()):
        return GROUP
    whole = item.path.parent if item.path.parent in SHARING else item.path
    return os.path.relpath(whole, TESTS)


def place_of(group: str) -> int:
    starts = (place for place, folder in enumerate(STARTING_PROCESSES) if group.startswith(folder))
    return next(starts, len(STARTING_PROCESSES))
