"""Windows judged as they arrive: the same as of the whole capture, each as soon as the frame behind it is there."""

import gzip
import io
import os
import threading

import numpy as np
import pytest
from waiting import wait_until

from graphmill.base.errors import UserError
from graphmill.tasks.intrusion.baselines import Frequencies
from graphmill.tasks.intrusion.data.captures import iterate, iterate_arriving, read_capture
from graphmill.tasks.intrusion.data.frames import EXTENDED, Problems
from graphmill.tasks.intrusion.data.windows import Leftover, graphs_of, joined_graphs
from graphmill.tasks.intrusion.live import CauseWeights, LiveWindows, id_text

LINES = [f"({place}.5) can0 {place % 7:03X}#{place % 251:02X}" for place in range(45)]


def num_nodes(graphs):
    """A made-up model: a window's score is its number of nodes; a node weighs its id, an edge its count."""
    return graphs.num_nodes


def attribute(graphs):
    missing, pairs = np.full((len(graphs), 2), [1.0, 3.0]), np.array([[0x10, 0x7FF], [0x20, 0x30]], np.uint32)
    return CauseWeights(graphs.node_ids.astype(float), graphs.edge_attr[:, 0], missing, pairs)


def judged(file, **choices):
    live = LiveWindows(num_nodes, attribute, None, size=10, stride=10)
    given = {"layout": "auto", "threshold": 6.0} | choices
    return list(live.verdicts(file, "the bus", **given)), live


def test_each_window_is_judged_when_the_frame_behind_it_arrives():
    read, write = os.pipe()
    with os.fdopen(read, "rb") as arriving, os.fdopen(write, "wb", buffering=0) as bus:
        live = LiveWindows(num_nodes, attribute, None, size=10, stride=10)
        verdicts = live.verdicts(arriving, "the bus", layout="auto", threshold=6.0)
        bus.write(f"{LINES[0]}\n".encode())
        for number in range(4):
            following = LINES[10 * number + 1 : 10 * number + 11]  # up to the frame behind the window, and no further
            bus.write("".join(f"{line}\n" for line in following).encode())
            verdict = next(verdicts)
            assert (verdict.number, verdict.end_s) == (number, 10 * number + 9.5)
        bus.close()
        assert list(verdicts) == []


def test_pieces_change_nothing():
    text = "\n".join(LINES).encode() + b"\n"
    whole, _ = judged(io.BytesIO(text))
    assert [verdict.number for verdict in whole] == [0, 1, 2, 3]
    for width in (1, 17, 400):
        pieces = _Pieces(text, width)
        assert judged(pieces)[0] == whole
    graphs = joined_graphs(
        list(graphs_of(iterate_arriving(io.BytesIO(text), "", Problems()), Leftover(), size=10, stride=10))
    )
    assert [verdict.score for verdict in whole] == graphs.num_nodes.tolist()
    assert [(verdict.begin_s, verdict.end_s) for verdict in whole] == [tuple(row) for row in graphs.times.tolist()]


class _Pieces(io.BytesIO):
    def __init__(self, text, width):
        super().__init__(text)
        self.width = width

    def read1(self, size=-1):
        return super().read1(self.width)


def test_what_weighs_most_is_named_with_its_share():
    verdicts, live = judged(io.BytesIO("\n".join(LINES[:11]).encode()))
    (verdict,) = verdicts
    assert verdict.attributions["ids"] == [(f"00{n}", round(n / 21, 4)) for n in (6, 5, 4, 3, 2)]
    assert verdict.attributions["edges"][0] == ("000>001", 0.2)
    assert verdict.attributions["missing"] == [("7FF>030", 0.75), ("010>020", 0.25)]
    assert verdict.is_alarm
    assert verdict.is_attack is None
    assert any("1 frames" in remark for remark in live.notes())


def test_causes_are_told_of_alarms_alone_and_are_those_of_their_window():
    lines = [f"({place}.5) can0 {identity:03X}#00" for place, identity in enumerate([1] * 10 + [2, 3] * 10 + [4] * 11)]
    verdicts, _ = judged(io.BytesIO("\n".join(lines).encode()), threshold=2.0)
    assert [[name for name, _ in verdict.attributions.get("ids", [])] for verdict in verdicts] == [
        ["002", "001"],  # the id behind a window is a node of it
        ["003", "002"],
        ["004", "003", "002"],
        [],
    ]


def test_alarms_are_compared_with_the_labels_of_a_capture():
    rows = [f"{place}.5,{place % 7:03X},01,{int(place < 10)}" for place in range(30)]
    verdicts, live = judged(io.BytesIO("\n".join(rows).encode()), threshold=7.0)
    assert [verdict.is_attack for verdict in verdicts] == [True, False, False]
    assert any("f1 0.5000" in remark for remark in live.notes())  # all three have seven ids


def test_it_is_counted_how_often_an_attacked_id_is_named():
    """A node weighs its id, so that of ids 0 to 6, which every window has, 2 to 6 are named."""
    attacked = {3, 10 + 1}  # frames: of the first window id 3, of the second id 4
    rows = [f"{place}.5,{place % 7:03X},01,{int(place in attacked)}" for place in range(31)]
    remarks = list(judged(io.BytesIO("\n".join(rows).encode()), threshold=6.0)[1].notes())
    assert any("2 of 2 right alarms (100.0%)" in remark for remark in remarks)
    rows[7] = "7.5,000,01,1"  # id 0 of the first window, which is not named
    rows[3] = "3.5,003,01,0"
    pieces = _Pieces("\n".join(rows).encode(), 17)
    assert any("1 of 2 right alarms (50.0%)" in remark for remark in judged(pieces, threshold=6.0)[1].notes())
    assert not any("right alarms" in remark for remark in judged(io.BytesIO("\n".join(LINES).encode()))[1].notes())


def test_bad_lines_are_told_once_and_counted(caplog):
    rows = [line for each in LINES[30:] for line in (each, "rubbish")]
    verdicts, live = judged(io.BytesIO("\n".join([*LINES[:30], *rows]).encode()))
    assert [record.getMessage().count("line 32") for record in caplog.records] == [1]
    assert any("15, first in line 32" in remark for remark in live.notes())
    assert len(verdicts) == 4


def test_a_wrong_layout_is_told_while_the_stream_lasts(caplog):
    read, write = os.pipe()
    with os.fdopen(read, "rb") as arriving, os.fdopen(write, "wb", buffering=0) as bus:
        live = LiveWindows(num_nodes, attribute, None, size=10, stride=10)
        verdicts = live.verdicts(arriving, "the bus", layout="csv", threshold=6.0)
        ends: list[UserError] = []
        watching = threading.Thread(target=lambda: ends.append(_refusal(verdicts)))
        watching.start()
        bus.write("".join(f"{line}\n" for line in LINES).encode())
        wait_until(lambda: any("line 1" in record.getMessage() for record in caplog.records), "a warning")
        bus.close()
        watching.join()
    assert "csv" in str(ends[0])


def _refusal(verdicts):
    with pytest.raises(UserError) as refused:
        next(verdicts)
    return refused.value


@pytest.mark.parametrize(
    ("content", "where"),
    [
        (b"", "the bus"),
        (b"rubbish\n" * 500, "line 1"),
        (gzip.compress(b"x" * 10_000, mtime=0), "line 1"),
        (b"\0" * 10**6, "line 1"),
    ],
)
def test_what_is_no_capture_is_refused(content, where):
    with pytest.raises(UserError, match=where):
        judged(io.BytesIO(content))
    with pytest.raises(UserError, match="nonsense"):
        judged(io.BytesIO(content), layout="nonsense")


def test_a_torn_file_is_refused_behind_the_verdicts_of_what_was_whole():
    whole = gzip.compress("\n".join(LINES * 200).encode())
    live = LiveWindows(num_nodes, attribute, None, size=10, stride=10)
    seen = []
    with gzip.open(io.BytesIO(whole[:-30])) as torn, pytest.raises(UserError, match="behind line"):
        seen.extend(live.verdicts(torn, "a.gz", layout="auto", threshold=1.0))
    assert len(list(live.notes())) >= 1


def test_ids_are_written_as_candump_does():
    assert id_text(np.uint32(0x1E5)) == "1E5"
    assert id_text(np.uint32(0)) == "000"
    assert id_text(np.uint32(0x1E5) | EXTENDED) == "000001E5"


def test_the_statistic_watches_the_real_capture(shared_data):
    path = shared_data("can/can-train-and-test/set_01/train_01/DoS-1.csv.gz")
    graphs = joined_graphs(list(graphs_of([read_capture(path)[0]], Leftover())))
    known = Frequencies.fit(graphs, (graphs.labels == 0) & (np.arange(len(graphs)) > 450))
    live = LiveWindows(known.score, attribute, None, size=100, stride=100)
    with gzip.open(path) as file:
        verdicts = list(live.verdicts(file, "DoS-1", layout="auto", threshold=10.0))
    assert len(verdicts) == len(graphs) == 901
    assert sum(len(frames) for frames in iterate(path, Problems())) == 90_169
    np.testing.assert_allclose([verdict.score for verdict in verdicts], known.score(graphs), rtol=1e-12)
    flooded = [verdict for verdict in verdicts if verdict.is_attack]
    assert all(verdict.is_alarm and verdict.attributions["edges"][0][0].startswith("000>") for verdict in flooded[1:-1])
