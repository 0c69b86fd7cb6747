"""Sums over what monitors wrote: bounds that hold for any rows, and figures that can be checked by hand."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.monitor.columns import COLUMNS
from graphmill.monitor.sampler import line
from graphmill.monitor.summary import MonitorFolder, MonitorRow, parse_rows, read_monitors, summarise

NUMBERS = st.floats(0, 1e6)


def rows_of(*table: tuple[float, str, dict[str, object]]) -> list[MonitorRow]:
    return parse_rows([line(f"{time:.3f}", subject, cells) for time, subject, cells in table])


def test_averages_are_weighted_by_the_time_that_rows_cover():
    rows = rows_of(
        (1, "host", {"busy_percent": 0}), (2, "host", {"busy_percent": 0}), (5, "host", {"busy_percent": 100})
    )
    summary = summarise({"a": rows})
    assert summary.cpu_util_avg == pytest.approx(100 * 3 / (2 + 1 + 3))  # the first row covers the usual gap: 2 s


def test_hosts_and_gpus_are_averaged_ranks_are_not():
    rows = {
        name: rows_of(
            (1, "host", {"busy_percent": busy}),
            *((1, f"gpu_{number}", {"busy_percent": busy + number}) for number in range(2)),
            (1, f"rank_{rank}", {"memory_mib": 100 * (rank + 1), "peak_mib": 100 * (rank + 1) + 7, "private_mib": 60}),
        )
        for name, busy, rank in (("a", 10, 0), ("b", 30, 1))
    }
    summary = summarise(rows)
    assert summary.cpu_util_avg == pytest.approx(20)
    assert summary.gpu_util_avg == pytest.approx(20.5)
    assert summary.peak_mib_by_rank == {0: 107.0, 1: 207.0}
    assert summarise({}).gpu_util_avg is None


def test_what_ranks_of_a_host_share_is_counted_once():
    rows = rows_of(*((1, f"rank_{rank}", {"memory_mib": 1000, "private_mib": 100, "cores": 1.5}) for rank in range(4)))
    (host,) = summarise({"a": rows}).hosts
    assert host.ranks_peak_mib == 4 * 100 + 900
    assert host.ranks_cores_avg == 6.0


def test_cpu_time_goes_on_over_attempts():
    rows = rows_of(*((time, "rank_0", {"cpu_s": cpu}) for time, cpu in ((1, 3), (2, 5), (100, 2), (101, 4))))
    assert summarise({"a": rows}).hosts[0].ranks[0].cpu_s == pytest.approx(5 + 4)


def test_a_span_holds_what_was_taken_within_it():
    rows = rows_of(*((time, "host", {"received_bytes": 10, "busy_percent": time}) for time in range(1, 11)))
    (host,) = summarise({"a": rows}, begin=3, end=7).hosts
    assert host.host.received_bytes == 40
    assert (host.host.busy_percent_avg, host.host.busy_percent_peak) == (5.5, 7)
    assert summarise({"a": rows}, begin=20).hosts == ()


def test_files_are_read_on_from_where_they_were_read_to(tmp_path: Path):
    path = tmp_path / "a.csv"
    texts = [line(f"{time}.000", "host", {"busy_percent": 10 * time}) for time in range(1, 5)]
    path.write_text(f"{','.join(COLUMNS)}\n{texts[0]}\n{texts[1]}\n{texts[2][:9]}")
    folder = MonitorFolder(tmp_path)
    assert folder.summarise(0, 2).cpu_util_avg == pytest.approx(15)
    with path.open("a") as file:
        file.write(f"{texts[2][9:]}\n{texts[3]}\n")
    assert folder.summarise(2, 4).cpu_util_avg == pytest.approx(35)
    assert folder.summarise(2, 4) == summarise(read_monitors(tmp_path), begin=2, end=4)


AMOUNTS = st.just(0.0) | st.floats(1e-6, 1e6)  # a denormal number has no 1e-9 of itself


@given(st.lists(st.tuples(st.floats(0.01, 30), AMOUNTS), min_size=1, max_size=30))
def test_an_average_lies_between_the_least_and_the_most(samples):
    time, table = 0.0, []
    for gap, value in samples:
        time += gap
        table.append(MonitorRow(time, "host", {"busy_percent": value, "memory_mib": value}))
    use = summarise({"a": table}).hosts[0].host
    values = [value for _, value in samples]
    assert min(values) <= use.busy_percent_avg * (1 + 1e-9)
    assert use.busy_percent_avg <= max(values) * (1 + 1e-9)
    assert use.memory_peak_mib == max(values)
    assert use.seconds > 0


@given(st.text(max_size=60))
def test_any_line_is_a_row_or_left_out(text: str):
    assert len(parse_rows([text])) <= 1


@pytest.mark.parametrize("torn", ["", "1.0", "1.0,host", "x" + "," * (len(COLUMNS) - 1), ",".join(COLUMNS)])
def test_headers_and_torn_lines_are_no_rows(torn: str):
    assert parse_rows([torn]) == []


def test_samplers_are_no_ranks_and_use_the_host_as_these_do():
    rows = rows_of(
        (1, "rank_0", {"memory_mib": 300, "private_mib": 100, "cores": 1.0, "peak_mib": 310}),
        (1, "sampler_0", {"memory_mib": 500, "private_mib": 200, "cores": 0.5, "peak_mib": 520}),
    )
    summary = summarise({"a": rows})
    (host,) = summary.hosts
    assert (list(host.ranks), list(host.samplers)) == ([0], [0])
    assert (summary.peak_mib_by_rank, summary.peak_mib_by_sampler) == ({0: 310.0}, {0: 520.0})
    assert (host.ranks_cores_avg, host.ranks_peak_mib) == (1.5, 100 + 200 + 300)
