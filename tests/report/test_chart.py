"""What stands where: limits from the data, logarithms where the range asks, no averages over what differs."""

from pathlib import Path

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from graphmill.base.errors import UserError
from graphmill.record.metrics import write_metrics
from graphmill.report.chart import (
    Chart,
    Panel,
    Series,
    edge_marks,
    edge_note,
    focus,
    legend_entries,
    linear_axis,
    log_axis,
    tick_text,
    with_room,
)
from graphmill.report.curves import accuracy_vs_communication, mean_curves, sync_ablation
from graphmill.report.draw import drawn
from graphmill.report.frontier_chart import pareto_frontier
from graphmill.report.pareto import DEFAULT_COMM, usable_points
from graphmill.report.table import by_dataset, load_metrics
from graphmill.tasks.node_classification.page import KIND as NODES

ORDINARY = st.floats(-1e6, 1e6, allow_nan=False)


def parts_of(tmp_path: Path, rows):
    write_metrics(tmp_path / "metrics.csv", rows, NODES.columns)
    return by_dataset(load_metrics(tmp_path / "metrics.csv"))


def frontier_of(tmp_path: Path, rows):
    (part,) = parts_of(tmp_path, rows)
    return pareto_frontier(
        part, usable_points(part, tmp_path, DEFAULT_COMM, "best_val_micro_f1"), DEFAULT_COMM, "best_val_micro_f1"
    )


@settings(deadline=None)  # the first call imports matplotlib
@given(ORDINARY, ORDINARY)
@example(1e6, 999999.9999999999)
@example(0.0, 5e-324)
def test_a_linear_axis_holds_its_data_and_ticks(one: float, other: float):
    axis = linear_axis("", min(one, other), max(one, other))
    assert axis.lower < min(one, other)
    assert max(one, other) < axis.upper
    assert all(axis.lower <= tick <= axis.upper for tick in axis.ticks)


@settings(deadline=None)  # the first call imports matplotlib
@given(st.floats(1e-3, 1e6), st.floats(1e-3, 1e6))
def test_a_logarithmic_axis_holds_its_data_and_has_ticks_one_can_tell_apart(one: float, other: float):
    axis = log_axis("", min(one, other), max(one, other))
    assert axis.lower < min(one, other) <= max(one, other) < axis.upper
    texts = [tick_text(axis, tick) for tick in axis.ticks]
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize(
    ("axis", "texts"),
    [
        (linear_axis("", 0.78, 0.84), "0.78|0.80|0.82|0.84"),
        (linear_axis("", 0, 4000, from_zero=True), "0|1,000|2,000|3,000|4,000"),
        (log_axis("", 4, 600), "5|10|20|50|100|200|500"),
        (log_axis("", 0.002, 0.1), "0.002|0.005|0.01|0.02|0.05|0.1"),
        (log_axis("", 1, 1e6), "1|10|100|1,000|10,000|100,000|1e+06"),
    ],
)
def test_ticks_are_written_as_a_person_would(axis, texts):
    assert "|".join(tick_text(axis, tick) for tick in axis.ticks) == texts


def test_the_steep_start_may_lie_below_the_axis_but_nothing_else():
    climbing = [0.1, 0.5, 0.80, 0.81, 0.82, 0.83, 0.83, 0.84]
    assert focus([climbing]) == (0.80, 0.84)
    assert focus([[0.80, 0.82, 0.84, 0.86]]) == (0.80, 0.86)
    assert focus([[0.5]]) == (0.5, 0.5)


def test_a_point_is_the_mean_over_seeds_with_their_deviation(tmp_path: Path, plausible):
    rows = []
    for seed, accuracy in ((1, 0.70), (2, 0.80), (3, 0.90)):
        rows += [row | {"val_micro_f1": accuracy} for row in plausible.run_rows(seed=seed, epochs=2)]
    (curve,) = mean_curves(parts_of(tmp_path, rows)[0], "global_steps", "val_micro_f1")
    assert (curve.num_runs, curve.k, curve.x) == (3, 1, (152.0, 304.0))
    assert curve.y == pytest.approx((0.8, 0.8))
    assert curve.y_sd == pytest.approx((0.1, 0.1))


def test_a_line_ends_where_its_shortest_run_ends_and_the_person_is_told(tmp_path: Path, plausible):
    rows = plausible.run_rows(seed=1, epochs=5) + plausible.run_rows(seed=2, epochs=3)
    chart = sync_ablation(parts_of(tmp_path, rows)[0])
    assert len(chart.panels[0].series[0].x) == 3
    assert chart.note == "1 of 1 lines end where their shortest run ends"


def test_one_panel_per_scheme_and_one_colour_per_k(tmp_path: Path, plausible):
    (part,) = parts_of(tmp_path, plausible.study_rows())
    chart = sync_ablation(part)
    assert [panel.title for panel in chart.panels] == ["deferred all-reduce", "local SGD"]
    assert [series.label for series in legend_entries(chart)] == ["k = 1", "k = 2", "k = 4", "k = 8", "k = 16"]
    first, second = ({series.label: series.colour for series in panel.series} for panel in chart.panels)
    assert first == second
    assert len(set(first.values())) == 5
    assert chart.title == "test-data, 4 ranks, mean ± s.d. of 3 seeds"


def test_schemes_share_a_panel_where_there_is_one_k(tmp_path: Path, plausible):
    chart = sync_ablation(parts_of(tmp_path, plausible.study_rows(ks=(8,)))[0])
    assert len(chart.panels) == 1
    assert [series.label for series in chart.panels[0].series] == ["deferred all-reduce", "local SGD"]
    assert chart.title.endswith("k = 8")


def test_ranks_and_payloads_that_vary_are_named_and_not_averaged(tmp_path: Path, plausible):
    rows = [row for ws in (2, 4) for p in ("fp32", "bf16") for row in plausible.run_rows(world_size=ws, payload=p)]
    chart = sync_ablation(parts_of(tmp_path, rows)[0])
    labels = [series.label for series in chart.panels[0].series]
    assert "deferred all-reduce, bf16 payload, 2 ranks" in labels
    assert len(labels) == 4


def test_the_communication_axis_is_logarithmic_only_where_the_range_asks(tmp_path: Path, plausible):
    (wide,) = parts_of(tmp_path, plausible.study_rows(seeds=(1,)))
    assert accuracy_vs_communication(wide, DEFAULT_COMM, "best_val_micro_f1").x.is_log
    (narrow,) = parts_of(tmp_path, plausible.study_rows(seeds=(1,), ks=(1, 2)))
    assert not accuracy_vs_communication(narrow, DEFAULT_COMM, "best_val_micro_f1").x.is_log


def test_runs_without_communication_are_missing_from_a_logarithm_and_the_person_is_told(tmp_path: Path, plausible):
    rows = plausible.study_rows(seeds=(1,))
    rows += [row | {DEFAULT_COMM: 0.0} for row in plausible.run_rows(world_size=1)]
    chart = accuracy_vs_communication(parts_of(tmp_path, rows)[0], DEFAULT_COMM, "best_val_micro_f1")
    assert "runs without communication are not on the logarithmic axis" in chart.note
    assert all(x > 0 for panel in chart.panels for series in panel.series for x in series.x)
    frontier = frontier_of(tmp_path, rows)
    assert "12 points without communication" in frontier.note
    assert all(x > 0 for series in frontier.panels[0].series for x in series.x)


def test_the_pareto_chart_holds_every_epoch_the_frontier_and_the_ends(tmp_path: Path, plausible):
    chart = frontier_of(tmp_path, plausible.study_rows())
    forms = {form: [s for s in chart.panels[0].series if s.form == form] for form in ("cloud", "stairs", "means")}
    assert sum(len(series.x) for series in forms["cloud"]) == 2 * 5 * 3 * 12
    assert forms["stairs"][0].y == tuple(sorted(set(forms["stairs"][0].y)))
    names = [name for series in forms["means"] for name in series.names if name]
    assert sorted(names) == sorted(f"k = {k}" for k in (1, 2, 4, 8, 16))  # once for both schemes
    for series in forms["means"]:
        bounds = [y + sign * sd for y, sd in zip(series.y, series.y_sd, strict=True) for sign in (-1, 1)]
        assert all(chart.y.lower < bound < chart.y.upper for bound in bounds)
        assert all(chart.x.lower < x < chart.x.upper for x in series.x)


def test_room_for_names_is_added_on_the_right():
    assert with_room(linear_axis("", 0, 100, from_zero=True), 0.1).upper == pytest.approx(104 * 1.1)
    axis = log_axis("", 1, 100)
    assert with_room(axis, 0.5).upper / axis.lower == pytest.approx((axis.upper / axis.lower) ** 1.5)


def test_a_single_epoch_and_run_can_be_drawn(tmp_path: Path, plausible):
    rows = plausible.run_rows(epochs=1)
    (part,) = parts_of(tmp_path, rows)
    assert sync_ablation(part).title.endswith("single run, deferred all-reduce")
    assert frontier_of(tmp_path, rows).panels[0].series


def test_metrics_that_were_never_evaluated_are_refused(tmp_path: Path, plausible):
    rows = [row | {"val_micro_f1": None} for row in plausible.run_rows()]
    with pytest.raises(UserError, match="no row of test-data has both global_steps and val_micro_f1"):
        sync_ablation(parts_of(tmp_path, rows)[0])


def test_synthetic_data_is_marked_even_where_one_row_only_says_so(tmp_path: Path, plausible):
    rows = plausible.run_rows()
    rows[4]["synthetic"] = True
    assert sync_ablation(parts_of(tmp_path, rows)[0]).is_synthetic


def test_datasets_are_split_and_none_is_lost(tmp_path: Path, plausible):
    rows = [row for name in ("cora", None, "pubmed") for row in plausible.run_rows(dataset=name, epochs=2)]
    parts = parts_of(tmp_path, rows)
    assert [part.suffix for part in parts] == ["_unnamed", "_cora", "_pubmed"]
    assert pl.concat([part.frame for part in parts]).height == len(rows)


def test_a_line_that_leaves_the_axis_has_a_mark_there_and_a_note_says_how_far():
    line = Series("a", "line", "000000", "circle", (0.0, 1.0, 2.0, 3.0), (90.0, 70.0, 60.0, 61.0))
    axis = linear_axis("", 58.0, 72.0)
    ((x, edge),) = edge_marks(line, axis)
    assert edge == axis.upper
    assert 0 < x < 1
    assert "up to 90" in edge_note([Panel("", (line,))], axis)
    assert "down" not in edge_note([Panel("", (line,))], axis)
    assert edge_note([Panel("", (line,))], linear_axis("", 60.0, 90.0)) == ""


def test_every_word_of_a_legend_is_within_the_figure():
    label = ", ".join(f"option {number} is {number}.5" for number in range(12))
    chart = Chart(
        "c",
        "t",
        "",
        False,
        linear_axis("", 0, 1),
        linear_axis("", 0, 1),
        (Panel("", (Series(label, "line", "000000", "circle", (0.0, 1.0), (0.0, 1.0)),)),),
    )
    with drawn(chart) as figure:
        figure.draw_without_rendering()
        box = figure.axes[0].get_legend().get_window_extent()
        assert 0 <= box.x0 < box.x1 <= figure.bbox.width
        assert figure.axes[0].get_window_extent().width > 0.6 * figure.bbox.width
