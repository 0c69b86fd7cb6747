"""How the jobs of a pulled run ended is written once all of them have: `verify` goes by it from then on."""

import json
from pathlib import Path

import pytest

from graphmill.cluster.last_word import fetch_last_word, has_last_word
from graphmill.record.documents import SubmittedJob
from graphmill.slurm.accounting import COLUMNS

ENDED = json.loads((Path(__file__).parents[1] / "verify" / "recorded" / "good.json").read_text())[0]


def answer(path: Path, **end_of: str) -> list[str]:
    """The command that sacct's answer comes from, as if by ssh: of each job its end."""
    rows = [{**ENDED, "JobID": name[1:], "JobIDRaw": name[1:], "End": end} for name, end in end_of.items()]
    lines = [COLUMNS, *([row[column] for column in COLUMNS] for row in rows)]
    path.write_text("".join("\x1f".join(line) + "\n" for line in lines))
    return ["sh", "-c", f"cat {path}"]


@pytest.mark.parametrize("of_the_second", [None, "Unknown", "1795260999"], ids=["not known", "it runs", "it has ended"])
@pytest.mark.parametrize("first", ["17", "18"])
def test_a_run_has_its_last_word_once_each_of_its_jobs_has_ended(new_run, tmp_path, first, of_the_second):
    folder, _ = new_run()
    assert has_last_word(folder), "it was no job"
    for job in ("17", "18"):
        folder.note_job(SubmittedJob(job_id=job, time=1.0))
    second = {"17": "18", "18": "17"}[first]
    ends = {f"_{first}": ENDED["End"], **({} if of_the_second is None else {f"_{second}": of_the_second})}
    has_ended = of_the_second == "1795260999"
    assert fetch_last_word([folder], answer(tmp_path / "said", **ends)) == has_ended
    assert folder.sacct_ended_path.exists() == has_last_word(folder) == has_ended
