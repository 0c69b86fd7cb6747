"""evaluations.csv: long form, appended, cut back by a resume."""

import math
from pathlib import Path

import pytest

from graphmill.base.errors import UserError
from graphmill.record.evaluations import append_evaluation, cut_back, read_evaluations
from graphmill.record.run_folder import RunFolder


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path)


def written(folder: RunFolder) -> list[tuple]:
    return [(row.epoch, row.set, row.measure, row.value) for row in read_evaluations(folder)]


def test_rows_are_appended_and_read_back(folder: RunFolder):
    append_evaluation(folder.evaluations_path, 1, "val", {"mae": 0.1, "num_seeds": 7})
    append_evaluation(folder.evaluations_path, 1, "size, 20", {"mae": 1 / 3})
    assert folder.evaluations_path.read_text().splitlines()[0] == "epoch,set,measure,value"
    assert written(folder) == [(1, "val", "mae", 0.1), (1, "val", "num_seeds", 7), (1, "size, 20", "mae", 1 / 3)]


def test_a_value_that_is_no_number_is_read_back_as_it_is(folder: RunFolder):
    append_evaluation(folder.evaluations_path, 1, "val", {"mae": math.nan, "loss": math.inf})
    (nan, infinite) = read_evaluations(folder)
    assert math.isnan(nan.value)
    assert infinite.value == math.inf


def test_a_half_written_row_is_cut_off_by_the_next(folder: RunFolder):
    append_evaluation(folder.evaluations_path, 1, "val", {"mae": 0.5})
    with folder.evaluations_path.open("a") as file:
        file.write("2,val,ma")
    with pytest.raises(UserError, match="line 3"):
        read_evaluations(folder)
    assert [row.epoch for row in read_evaluations(folder, is_growing=True)] == [1]
    append_evaluation(folder.evaluations_path, 2, "val", {"mae": 0.25})
    assert written(folder) == [(1, "val", "mae", 0.5), (2, "val", "mae", 0.25)]


def test_a_resume_leaves_the_epochs_that_it_keeps(folder: RunFolder):
    for epoch in range(4):
        append_evaluation(folder.evaluations_path, epoch, "val", {"mae": epoch})
    append_evaluation(folder.evaluations_path, 1, "test", {"mae": 9})
    cut_back(folder, 2, from_the_start=False)
    assert written(folder) == [(0, "val", "mae", 0), (1, "val", "mae", 1), (2, "val", "mae", 2)]
    cut_back(folder, 0, from_the_start=True)
    assert written(folder) == []


def test_a_resume_takes_back_the_baselines_of_the_end_and_leaves_those_of_the_beginning(folder: RunFolder):
    for epoch, name in ((0, "val/majority"), (1, "val"), (1, "test"), (0, "val/means")):  # killed before test/means
        append_evaluation(folder.evaluations_path, epoch, name, {"mae": 1})
    cut_back(folder, 1, from_the_start=False)
    assert [row.set for row in read_evaluations(folder)] == ["val/majority", "val"]


@pytest.mark.parametrize("row", ["1,val,mae,many", "one,val,mae,1", "1,val,mae"])
def test_a_damaged_row_is_refused_with_its_line(folder: RunFolder, row: str):
    folder.evaluations_path.write_text(f"epoch,set,measure,value\n1,val,loss,2\n{row}\n")
    with pytest.raises(UserError, match="line 3"):
        read_evaluations(folder)


def test_another_header_is_refused(folder: RunFolder):
    folder.evaluations_path.write_text("epoch,split,measure,value\n")
    with pytest.raises(UserError, match="split"):
        read_evaluations(folder)
