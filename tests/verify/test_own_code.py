"""A run says which copy of the user's code its ranks imported; `verify` compares that, and the copy itself."""

import json

import pytest

from graphmill.runtime.snapshot import FOLDER, Snapshot, damage, digest_of, write_snapshot

FILES = {"0/model.py": b"WIDTH = 5\n"}
SHA256 = digest_of(FILES)


@pytest.fixture
def copied(run):
    """A run whose ranks imported a copy, as they and the job say."""
    folder = run.path.parent / FOLDER / SHA256
    write_snapshot(FILES, folder)
    attempts = [json.loads(line) for line in run.folder.attempts_path.read_text().splitlines()]
    text = "".join(json.dumps({**attempt, "own_code": SHA256}) + "\n" for attempt in attempts)
    run.folder.attempts_path.write_text(text)
    for rank in range(2):
        run.event(rank, "start", own_code=SHA256)
    code = Snapshot(SHA256, str(folder), ("/where/it/was",))
    run.folder.job_path.write_text(json.dumps({"code": code.__dict__}))
    return folder


def said(run) -> dict[str, tuple[str, str]]:
    return {check.name: (check.result, check.detail) for check in run.checks() if "own code" in check.name}


def test_ranks_that_imported_the_copy(run, copied):
    assert {name: result for name, (result, _) in said(run).items()} == {"own code": "ok", "copy of own code": "ok"}


def test_a_run_without_a_copy_is_not_asked_for_one(run):
    assert said(run) == {}


@pytest.mark.parametrize("imported", ["", "0" * 64])
def test_a_rank_that_imported_something_else(run, copied, imported):
    run.event(1, "start", own_code=imported)
    result, detail = said(run)["own code"]
    assert (result, "rank 1" in detail) == ("fail", True)


def test_a_copy_that_was_changed(run, copied):
    (copied / "0" / "torch.py").touch()
    assert damage(copied) is not None
    result, detail = said(run)["copy of own code"]
    assert (result, "0/torch.py was added" in detail) == ("fail", True)


def test_a_copy_that_is_gone(run, copied):
    copied.rename(run.path.parent / "moved")
    assert said(run)["copy of own code"][0] == "warn"


def test_an_attempt_that_began_without_the_copy_of_its_job(run, copied):
    run.folder.attempts_path.write_text(run.folder.attempts_path.read_text().replace(SHA256, ""))
    for rank in range(2):
        run.event(rank, "start", own_code="")
    result, detail = said(run)["own code"]
    assert (result, SHA256[:12] in detail) == ("warn", True)
