"""`graphmill baseline`, where what the task's default model needs is not there."""

import json

ROWS = 24 * 16


def test_a_series_without_a_graph_has_baselines(graphmill, tmp_path, monkeypatch):
    monkeypatch.setenv("GRAPHMILL_DATA_ROOT", str(tmp_path / "data"))
    lines = [
        f"2024-01-{1 + hour // 24:02}T{hour % 24:02}:00:00,{10 + hour % 24},{20 + hour % 24}" for hour in range(ROWS)
    ]
    (tmp_path / "walk.csv").write_text("\n".join(["time,a,b", *lines]) + "\n")
    done = graphmill("prepare", "walk", "--task", "traffic", "--from", "walk.csv")
    assert done.code == 0, done.err
    found = graphmill("baseline", "walk", "--json")
    assert found.code == 0, found.err
    scores = json.loads(found.out)["baselines"]
    assert set(scores) == {"last_value", "day_before", "week_before", "historical_average", "linear_autoregression"}
    assert scores["day_before"]["scores"]["test"]["mae"] == 0
