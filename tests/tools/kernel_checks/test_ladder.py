"""The ladder finds planted faults, each by its step, and says nothing of sound kernels."""

import os
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")
if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("there is a GPU: set TRITON_INTERPRET=1 to run the interpreter", allow_module_level=True)
sys.path.insert(0, str(Path(__file__).parent))  # the toys are scripts' modules, as users have them

import toy_cases

from kernel_checks.guards import zones_of
from kernel_checks.ladder import Case, climb, report

WRONG = dict(zip(toy_cases.WRONG, toy_cases.wrong(), strict=True))


@pytest.mark.parametrize("fault", WRONG)
def test_a_planted_fault_is_found(fault):
    found = climb(WRONG[fault]).faults
    assert fault.split(",")[0] in {each.step for each in found}, found
    if fault.startswith("bounds"):
        assert any("toys.py:" in each.says for each in found)


@pytest.mark.parametrize("case", toy_cases.right(), ids=lambda case: case.name)
def test_nothing_is_said_of_a_sound_kernel(case):
    climbed = climb(case)
    assert climbed.faults == []
    assert "must move" in report(climbed)
    assert "model" in report(climbed)


def test_what_a_kernel_moves_is_counted():
    (moved,) = climb(toy_cases.right()[0]).moved
    assert (moved.asked, moved.read, moved.written) == (2 * 400, 400, 400)


def test_where_a_lane_has_gone_is_said():
    (said,) = {each.says for each in climb(WRONG["bounds, an id of data"]).faults if each.step == "bounds"}
    assert "1 lanes, the first 1960 bytes after the end of rows" in said  # id 500 of ten of 4 bytes


def test_kernels_that_are_not_interpreted_are_no_pass():
    with pytest.raises(RuntimeError, match="set TRITON_INTERPRET=1"):
        climb(Case("nothing", lambda _: {}, {}))


def test_tensors_that_overlap_share_a_zone_and_others_do_not():
    whole = torch.arange(12.0)
    zones, views = zones_of([whole[2:8], whole[:4], whole.view(3, 4)[:, 3], torch.ones(3)])
    assert len(zones) == 2
    assert [view.tolist() for view in views] == [[2, 3, 4, 5, 6, 7], [0, 1, 2, 3], [3, 7, 11], [1, 1, 1]]
    views[1][3] = 50
    assert views[2][0] == 50
    assert views[0][1] == 50
    assert all(zone.holds() for zone in zones)
    views[3].as_strided((4,), (1,))[3] = 0
    assert [zone.holds() for zone in zones].count(False) == 1
