"""Figures of predictions, and learning curves: what is drawn, of what, and what is refused."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from graphmill.base.errors import UserError
from graphmill.record.metrics import write_metrics
from graphmill.report.chart import Chart
from graphmill.report.class_charts import (
    MOST_CLASSES,
    MOST_IN_MATRIX,
    SHADES,
    class_scores,
    confusion_matrix,
    confusions,
    per_class_scores,
)
from graphmill.report.draw import drawn
from graphmill.report.figures import figures, prediction_figures
from graphmill.report.forecast_chart import SPAN_S, forecast_vs_truth
from graphmill.report.learning import MOST_LINES, learning_curves
from graphmill.report.predictions import open_predictions
from graphmill.report.table import by_dataset, load_metrics
from graphmill.spec.kinds.kind import ORIGIN
from graphmill.tasks.node_classification.page import KIND as NODES
from graphmill.tasks.traffic.page import KIND as TRAFFIC

ABOUT = {"run": "logs/r-1", "dataset": "toy", "split": "test", "synthetic": True}


def written(path: Path, table: pl.DataFrame, **about: Any) -> Path:
    table.write_parquet(path, metadata={ORIGIN: json.dumps({**ABOUT, **about})})
    return path


def of_nodes(path: Path, pairs: list[tuple[int | None, int]], **about: Any) -> Path:
    table = pl.DataFrame(pairs, schema={"label": pl.Int64, "prediction": pl.Int64}, orient="row")
    return written(path, table, task=NODES.name, **about)


def of_traffic(path: Path) -> Path:
    """Two steps ahead, six sensors: sensor s<n> is forecast n too high; readings of two days, every five minutes."""
    rows = [
        (f"s{sensor}", time, step, 50.0 + step, 50.0 + step + sensor)
        for time in range(0, 2 * SPAN_S, 300)
        for step in (1, 2)
        for sensor in range(6)
    ]
    table = pl.DataFrame(rows, schema=["sensor", "time", "horizon", "reading", "forecast"], orient="row")
    return written(path, table, task=TRAFFIC.name, unit="km/h")


def test_scores_of_every_class(tmp_path):
    pairs = [(0, 0), (0, 0), (0, 1), (1, 1), (2, 0), (None, 2)]
    of = open_predictions(of_nodes(tmp_path / "p.parquet", pairs, class_names=["red", "green", "blue"]))
    scores = class_scores(of, NODES.predictions)
    assert scores.columns == ["class", "name", "items", "predicted", "precision", "recall", "f1"]
    red, green, blue = scores.rows()
    assert red == (0, "red", 3, 3, pytest.approx(2 / 3), pytest.approx(2 / 3), pytest.approx(2 / 3))
    assert green == (1, "green", 1, 2, 0.5, 1.0, pytest.approx(2 / 3))
    assert blue == (2, "blue", 1, 0, None, 0.0, 0.0)


@settings(max_examples=10, deadline=None)  # each writes a file
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=80))
def test_scores_and_the_matrix_add_up(tmp_path_factory, pairs):
    of = open_predictions(of_nodes(tmp_path_factory.mktemp("p") / "p.parquet", pairs))
    scores = class_scores(of, NODES.predictions)
    assert scores["items"].sum() == scores["predicted"].sum() == len(pairs)
    right = sum(truth == predicted for truth, predicted in pairs)
    recalled = (scores["recall"].fill_null(0.0) * scores["items"]).sum()
    assert recalled == pytest.approx(right, abs=1e-9 * len(pairs))
    table = confusions(of, NODES.predictions, scores)
    assert table["items"].sum() == len(pairs)
    chart = confusion_matrix(of, table, scores)
    cells = [(x, base) for series in chart.panels[0].series for x, base in zip(series.x, series.base, strict=True)]
    assert len(cells) == len(set(cells))
    shown = set(scores["class"].head(MOST_IN_MATRIX))
    counts = {pair: pairs.count(pair) for pair in pairs if set(pair) <= shown}
    assert len(cells) == len(counts)


def test_of_many_classes_the_largest_are_drawn_and_it_says_so(tmp_path):
    pairs = [(number, number) for number in range(MOST_CLASSES + 4) for _ in range(number + 1)]
    of = open_predictions(of_nodes(tmp_path / "p.parquet", pairs))
    scores = class_scores(of, NODES.predictions)
    chart = per_class_scores(of, scores)
    assert chart.y.tick_texts[0] == f"{MOST_CLASSES + 3} ({MOST_CLASSES + 4})"
    assert len(chart.y.ticks) == MOST_CLASSES
    assert chart.note == f"the {MOST_CLASSES} largest of {MOST_CLASSES + 4} classes; the table next to it has all"
    assert chart.is_synthetic


def matrix_of(path: Path, pairs: list[tuple[int | None, int]], **about: Any) -> Chart:
    of = open_predictions(of_nodes(path, pairs, **about))
    scores = class_scores(of, NODES.predictions)
    return confusion_matrix(of, confusions(of, NODES.predictions, scores), scores)


def test_a_matrix_has_a_number_in_each_cell_and_the_names_of_classes_at_both_axes(tmp_path):
    pairs = [(0, 0)] * 51 + [(0, 1)] * 49 + [(1, 1)] * 199 + [(1, 0)]
    chart = matrix_of(tmp_path / "p.parquet", pairs)
    assert chart.x.tick_texts == ("1", "0")  # the largest first; its name is 1
    assert chart.y.tick_texts == ("1 (200)", "0 (100)")
    cells = {
        (x, base): name
        for series in chart.panels[0].series
        for x, base, name in zip(series.x, series.base, series.names, strict=True)
    }
    assert cells == {(1.0, 1.5): ">99", (2.0, 1.5): "<1", (1.0, 0.5): "49", (2.0, 0.5): "51"}


def test_the_legend_of_a_matrix_has_the_shades_of_its_cells_also_where_no_cell_has_one(tmp_path):
    with drawn(matrix_of(tmp_path / "p.parquet", [(0, 0), (1, 1)])) as figure:
        (legend,) = [axes.get_legend() for axes in figure.axes]
        handles = [handle for handle in legend.legend_handles if isinstance(handle, Rectangle)]
        assert [to_hex(handle.get_facecolor()) for handle in handles] == [f"#{shade}".lower() for shade in SHADES]


def test_scores_near_one_are_apart(tmp_path):
    pairs = [(0, 0)] * 95 + [(0, 1)] * 5 + [(1, 1)] * 97 + [(1, 0)] * 3
    of = open_predictions(of_nodes(tmp_path / "p.parquet", pairs))
    axis = per_class_scores(of, class_scores(of, NODES.predictions)).x
    assert axis.lower > 0.9
    assert "0.95 to 1" in axis.label
    of = open_predictions(of_nodes(tmp_path / "q.parquet", [(0, 0), (1, 0)]))
    assert per_class_scores(of, class_scores(of, NODES.predictions)).x.lower <= 0


def test_forecasts_of_some_series_over_a_day_as_far_ahead_as_there_are(tmp_path):
    of = open_predictions(of_traffic(tmp_path / "p.parquet"))
    chart = forecast_vs_truth(of, TRAFFIC.predictions)
    assert [panel.title for panel in chart.panels] == [f"s{sensor}, MAE {sensor} km/h" for sensor in (0, 2, 3, 5)]
    reading, forecast = chart.panels[1].series
    assert (set(reading.y), set(forecast.y)) == ({52.0}, {54.0})
    assert reading.x[-1] - reading.x[0] < SPAN_S
    assert chart.title.endswith("2 steps (10 min) ahead")
    assert chart.y.label == "reading (km/h)"
    assert chart.x.tick_texts == ("00:00", "06:00", "12:00", "18:00")


def test_the_figures_are_files_named_after_run_data_and_split(tmp_path):
    options = {"images_dir": tmp_path / "i", "plots_dir": tmp_path / "t", "compile_tex": False}
    drawn = prediction_figures(of_nodes(tmp_path / "p.parquet", [(0, 0), (1, 0)]), **options)
    assert [path.name for path in drawn.images[::2]] == [
        "per_class_scores_logs-r-1_toy_test.png",
        "confusion_matrix_logs-r-1_toy_test.png",
    ]
    assert pl.read_csv(drawn.tables[0])["items"].to_list() == [1, 1]
    assert all(path.stat().st_size for path in (*drawn.images, *drawn.tex))
    with pytest.raises(UserError, match="per_class_scores and confusion_matrix"):
        prediction_figures(tmp_path / "p.parquet", only=["forecast_vs_truth"], **options)


def test_a_file_that_does_not_say_whose_predictions_it_holds_is_refused(tmp_path):
    table = pl.DataFrame({"label": [0], "prediction": [0]})
    table.write_parquet(tmp_path / "bare.parquet")
    (tmp_path / "text.csv").write_text("label,prediction\n0,0\n")
    for name, message in (("bare", "does not say"), ("absent", "is not a file")):
        with pytest.raises(UserError, match=message):
            open_predictions(tmp_path / f"{name}.parquet")
    with pytest.raises(UserError, match="not a whole Parquet file") as error:
        open_predictions(tmp_path / "text.csv")
    assert "text.parquet" in error.value.fix
    with pytest.raises(UserError, match="no item"):
        class_scores(open_predictions(of_nodes(tmp_path / "p.parquet", [(None, 1)])), NODES.predictions)


def test_code_that_a_file_names_is_not_imported(tmp_path):
    path = written(tmp_path / "p.parquet", pl.DataFrame({"label": [0], "prediction": [0]}), task="antigravity:KIND")
    with pytest.raises(UserError, match="outside this package") as error:
        open_predictions(path)
    assert "--task" in error.value.fix


def test_learning_curves_have_a_line_for_each_configuration(metrics_csv):
    (part,) = by_dataset(load_metrics(metrics_csv))
    loss, measure = learning_curves(part)
    assert (loss.name, measure.name) == ("learning_loss_test-data", "learning_val_micro_f1_test-data")
    labels = [series.label for series in measure.panels[0].series]
    assert labels == [f"{name}, k = {k}" for name in ("deferred all-reduce", "local SGD") for k in (1, 2, 4, 8, 16)]
    assert all(len(series.y_sd) == 12 for series in measure.panels[0].series)
    assert (measure.x.label, measure.y.label, loss.y.label) == ("epoch", "validation micro-F1", "loss (nats)")


def test_of_more_configurations_than_can_be_told_apart_the_best_are_drawn(tmp_path, plausible):
    rows = plausible.study_rows(ks=(1, 2, 3, 4, 5, 6, 8, 16), seeds=(1,))
    write_metrics(tmp_path / "metrics.csv", rows, NODES.columns)
    (part,) = by_dataset(load_metrics(tmp_path / "metrics.csv"))
    for chart, column in zip(learning_curves(part), ("loss", "val_micro_f1"), strict=True):
        drawn = {series.y[-1] for series in chart.panels[0].series}
        ends = sorted((row[column] for row in rows if row["epoch"] == 12), reverse=column != "loss")
        assert drawn == set(ends[:MOST_LINES])
        assert chart.note.startswith(f"the {MOST_LINES} best of 16 configurations; ")


def test_runs_of_one_rank_have_learning_curves_too(tmp_path, plausible):
    rows = plausible.run_rows(world_size=1, epochs=3)
    write_metrics(tmp_path / "metrics.csv", rows, NODES.columns)
    drawn = figures(
        tmp_path / "metrics.csv", images_dir=tmp_path, plots_dir=tmp_path, compile_tex=False, only=["learning_curves"]
    )
    assert [path.name for path in drawn.images[::2]] == [
        "learning_loss_test-data.png",
        "learning_val_micro_f1_test-data.png",
    ]
