"""A run's page shows its profile, if it has one: shares that are a whole, operators, what to change, what is unsure."""

import pytest
from made_profiles import operator, profile_of, rank_of

from graphmill.record.phases import PHASES_FILE, write_profile
from graphmill.report.page import Breakdown, Remark, Table
from graphmill.report.sections import profile_section


def test_what_it_shows(new_run):
    folder, _ = new_run(1)
    products = [operator("aten::mm", 0.5)]
    rank = rank_of(operators=products, wait=0.1).model_copy(update={"notes": ("shapes were cut",)})
    write_profile(folder.profile_dir, profile_of(rank))
    blocks = profile_section(folder).blocks
    (shares,) = [block for block in blocks if isinstance(block, Breakdown)]
    assert [name for name, _ in shares.parts] == ["wait", "forward", "backward"]
    assert sum(share for _, share in shares.parts) == pytest.approx(1)
    phases, operators = [block for block in blocks if isinstance(block, Table)]
    assert [row[0] for row in phases.rows] == ["wait", "forward", "backward", "step"]
    assert [row[0] for row in operators.rows] == ["aten::mm"]
    said = [block.text for block in blocks if isinstance(block, Remark)]
    assert said[0].startswith("aten::mm took 50 %")
    assert said[1].startswith("Try: train.precision=bf16")
    assert said[-1].startswith("Note: rank 0: shapes were cut")


def test_a_run_without_a_profile_has_no_such_section_and_a_damaged_one_is_said(new_run):
    folder, _ = new_run(1)
    assert profile_section(folder).blocks == ()
    folder.profile_dir.mkdir()
    (folder.profile_dir / PHASES_FILE).write_text("{")
    (block,) = profile_section(folder).blocks
    assert isinstance(block, Remark)
    assert PHASES_FILE in block.text
