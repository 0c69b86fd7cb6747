"""`scaling` and `bottleneck` on a study of real ranks."""

import json

import pytest


@pytest.mark.distributed
def test_a_strong_study_of_real_ranks(graphmill, toy, tmp_path):
    (tmp_path / "study.yaml").write_text(
        "# Strong\nname: s\nkind: strong\nexperiment: toy.yaml\nranks: [1, 2]\nglobal_batch: 60\n"
        "set: {train.device: cpu}\n"
    )
    ran = graphmill("study", "run", "study.yaml")
    assert ran.code == 0
    assert ran.out.endswith("s: done; `graphmill scaling study.yaml` compares the cells\n")
    result = graphmill("scaling", "study.yaml", "--json")
    assert result.code == 0, result.err
    told = json.loads(result.out)
    assert told["kind"] == "strong"
    assert [row["num_nodes"] for row in told["rows"]] == [1, 2]
    assert all(row["epoch_time_sec"] > 0 for row in told["rows"])
    assert (tmp_path / "results" / "scaling" / "s_synthetic-sbm" / "strong_speedup.png").stat().st_size > 0
    assert "strong scaling of synthetic/sbm; fixed problem" in graphmill("scaling", "logs/s").out
    verdicts = json.loads(graphmill("bottleneck", "s", "--json").out)["runs"]
    assert len(verdicts) == 2
    for each in verdicts:
        assert not any("only rank 0's clocks" in caveat for caveat in each["verdict"]["caveats"])
        assert ("imbalance" in each["verdict"]["shares"]) == ("ranks-2" in each["run"])


def test_what_cannot_be_judged_is_said(graphmill, toy, tmp_path):
    assert graphmill("bottleneck").code == 2
    result = graphmill("scaling", "study-debian-strong")
    assert result.code == 2
    assert "no cell of debian-strong was run yet" in result.err
