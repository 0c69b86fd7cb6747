"""A run from plan to outcome, and its continuation."""

import pytest

from graphmill.base.errors import UserError
from graphmill.cluster.launch.run import resume_run, start_run
from graphmill.record.run_folder import RunFolder
from graphmill.spec.differences import plan_differences


def test_a_run_leaves_its_records(tmp_path, make_plan, stand_in):
    plan = make_plan("mine")
    assert start_run(plan, logs_root=tmp_path, program=stand_in("0:finish", "1:finish")) == 0
    folder = RunFolder.open(tmp_path / "mine")
    assert folder.read_plan() == plan
    assert folder.read_outcome().status == "done"
    assert [attempt.resumed for attempt in folder.attempts()] == [False]
    provenance = folder.read_provenance()
    assert (provenance.dataset_checksum, provenance.synthetic) == (plan.dataset.checksum, False)
    assert "torch" in provenance.versions


def test_a_folder_that_holds_a_run_is_refused(tmp_path, make_plan, stand_in):
    start_run(make_plan("mine", ranks=1), logs_root=tmp_path, program=stand_in())
    with pytest.raises(UserError, match="holds a run already") as refused:
        start_run(make_plan("mine", ranks=1), logs_root=tmp_path, program=stand_in())
    assert "--resume" in refused.value.fix
    assert "--run-id" in refused.value.fix


def test_resume_notes_another_attempt_and_keeps_the_provenance(tmp_path, make_plan, stand_in):
    start_run(make_plan("mine", ranks=1), logs_root=tmp_path, program=stand_in("0:crash"))
    folder = RunFolder.open(tmp_path / "mine")
    before = folder.provenance_path.read_bytes()
    assert folder.read_outcome().status == "failed"
    assert resume_run(folder, program=stand_in("0:finish")) == 0
    assert folder.read_outcome().status == "done"
    assert [attempt.resumed for attempt in folder.attempts()] == [False, True]
    assert folder.provenance_path.read_bytes() == before


def test_a_done_run_is_not_run_again(tmp_path, make_plan, stand_in, caplog):
    start_run(make_plan("mine", ranks=1), logs_root=tmp_path, program=stand_in("0:finish"))
    assert resume_run(RunFolder.open(tmp_path / "mine"), program=["/nowhere"]) == 0
    assert "done already" in caplog.messages[0]


def test_another_plan_is_refused_but_not_another_machine(tmp_path, make_plan, stand_in):
    start_run(
        make_plan("mine", ranks=1, optimizer={"kind": "adam", "lr": 0.01}), logs_root=tmp_path, program=stand_in()
    )
    folder = RunFolder.open(tmp_path / "mine")
    with pytest.raises(UserError, match=r"lr is 0\.01 there and 0\.02 here"):
        resume_run(
            folder, requested=make_plan("mine", ranks=1, optimizer={"kind": "adam", "lr": 0.02}), program=stand_in()
        )
    assert resume_run(folder, requested=make_plan("mine", ranks=1, threads=7), program=stand_in()) == 0


def test_differences_name_the_nested_key(make_plan):
    one, other = make_plan(), make_plan(sync={"scheme": "local_sgd", "every": 4})
    assert 'sync.scheme is "deferred_allreduce" there and "local_sgd" here' in plan_differences(one, other)
    assert plan_differences(one, one) == []


def test_two_launchers_of_one_run_are_kept_apart(tmp_path, make_plan, stand_in):
    start_run(make_plan("mine", ranks=1), logs_root=tmp_path, program=stand_in())
    folder = RunFolder.open(tmp_path / "mine")
    with folder.lock(), pytest.raises(UserError, match="is in use by process"):
        resume_run(folder, program=stand_in())
    assert resume_run(folder, program=stand_in()) == 0
