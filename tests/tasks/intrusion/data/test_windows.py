"""Windows as graphs, against the definitions spelled out one window at a time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.tasks.intrusion.data.captures import iterate, read_capture
from graphmill.tasks.intrusion.data.frames import Frames, Problems
from graphmill.tasks.intrusion.data.windows import EDGE_FEATURES, NODE_FEATURES, Leftover, graphs_of, joined_graphs


def slow_graph(frames, begin, size):
    """Nodes, x, edges, edge_attr of one window, in plain Python."""
    pairs = [(int(frames.id[i]), int(frames.id[i + 1])) for i in range(begin, begin + size) if i + 1 < len(frames)]
    sent = [int(each) for each in frames.id[begin : begin + size]]
    nodes = sorted({*sent, *(target for _, target in pairs)})
    counts = {each: sent.count(each) for each in sent}
    least, most = min(counts.values()), max(counts.values())
    x = []
    for node in nodes:
        at = [i for i, each in enumerate(sent) if each == node]
        if not at:
            x.append([0.0] * 10)
            continue
        means = np.mean([frames.payload[begin + i] / 255 for i in at], axis=0)
        x.append([*means, (len(at) - least) / ((most - least) or 1), at[-1] / (size - 1)])
    edges = sorted(set(pairs))
    degree = {node: sum(pair.count(node) for pair in edges) for node in nodes}
    rows = []
    for source, target in edges:
        at = [i for i, pair in enumerate(pairs) if pair == (source, target)]
        gaps = np.diff(at) if len(at) > 1 else np.zeros(1)
        w = len(pairs)
        row = [len(at), len(at) / w, gaps.mean(), gaps.std(), 1 / (1 + gaps.std()), at[0] / w, at[-1] / w]
        row += [(at[-1] - at[0]) / w, (target, source) in edges]
        rows.append([*row, degree[source] * degree[target], degree[source] / degree[target]])
    index = [[nodes.index(source) for source, _ in edges], [nodes.index(target) for _, target in edges]]
    return nodes, x, index, rows


def made_frames(rng, count, num_ids):
    return Frames(
        np.cumsum(rng.random(count)),
        rng.integers(0, 2**32, num_ids, dtype=np.uint32)[rng.integers(0, num_ids, count)],
        rng.integers(0, 256, (count, 8), dtype=np.uint8),
        np.full(count, 8, np.uint8),
        (rng.random(count) < 0.02).astype(np.int8),
    )


def check(frames, graphs, begins, sizes):
    assert graphs.first_frames.tolist() == begins
    nodes = np.concatenate([[0], np.cumsum(graphs.num_nodes)])
    edges = np.concatenate([[0], np.cumsum(graphs.num_edges)])
    assert (nodes[-1], edges[-1]) == (len(graphs.x), len(graphs.edge_attr))
    for number, (begin, size) in enumerate(zip(begins, sizes, strict=True)):
        ids, x, index, attr = slow_graph(frames, begin, size)
        of_nodes, of_edges = slice(*nodes[number : number + 2]), slice(*edges[number : number + 2])
        assert graphs.node_ids[of_nodes].tolist() == ids
        np.testing.assert_allclose(graphs.x[of_nodes], x, rtol=1e-5, atol=1e-6)
        assert graphs.edge_index[:, of_edges].tolist() == index
        np.testing.assert_allclose(graphs.edge_attr[of_edges], attr, rtol=1e-4, atol=1e-4)
        share = (frames.label[begin : begin + size] == 1).mean()
        assert graphs.attack_share[number] == pytest.approx(share)
        assert graphs.labels[number] == (share > 0)
        assert graphs.times[number].tolist() == [frames.time[begin], frames.time[begin + size - 1]]


@given(st.data())
@settings(max_examples=60)
def test_graphs_are_as_defined_however_the_capture_is_cut(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    count = data.draw(st.integers(1, 150))
    size, stride = data.draw(st.integers(2, 40)), data.draw(st.integers(1, 50))
    frames = made_frames(rng, count, data.draw(st.integers(1, 30)))
    cuts = sorted(data.draw(st.lists(st.integers(0, count), max_size=5)))
    blocks = [frames[a:b] for a, b in zip([0, *cuts], [*cuts, count], strict=True)]
    keep = data.draw(st.booleans())
    leftover = Leftover()
    at_once = data.draw(st.sampled_from([1, 50, 2**16]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("graphmill.tasks.intrusion.data.windows._FRAMES_AT_ONCE", at_once)
        held = {"held_frames": data.draw(st.sampled_from([1, 25, 2**15]))}
        parts = list(graphs_of(blocks, leftover, size=size, stride=stride, keep_short=keep, **held))
    begins = list(range(0, count - size + 1, stride))
    sizes = [size] * len(begins)
    done = begins[-1] + size if begins else 0
    assert leftover.num_frames == max(0, count - max(done, len(begins) * stride))
    following = len(begins) * stride
    if keep and leftover.num_frames and count - following >= 2:
        begins.append(following)
        sizes.append(count - following)
    if not begins:
        assert not parts
        return
    check(frames, joined_graphs(parts), begins, sizes)


def test_chosen_graphs_are_those_of_their_windows():
    frames = made_frames(np.random.default_rng(3), 100, 9)
    graphs = joined_graphs(list(graphs_of([frames], Leftover(), size=10, stride=10)))
    chosen = graphs.chosen(np.arange(len(graphs)) % 3 == 1)
    check(frames, chosen, [10, 40, 70], [10] * 3)
    assert len(graphs.chosen(np.zeros(len(graphs), bool))) == 0


def test_the_names_are_as_many_as_the_features():
    assert (len(NODE_FEATURES), len(EDGE_FEATURES)) == (10, 11)


@pytest.mark.parametrize(("size", "stride"), [(1, 1), (100, 0)])
def test_a_window_that_is_none(size, stride):
    with pytest.raises(ValueError, match=str(size)):
        list(graphs_of([], Leftover(), size=size, stride=stride))


def test_the_real_capture(shared_data):
    path = shared_data("can/can-train-and-test/set_01/train_01/DoS-1.csv.gz")
    leftover = Leftover()
    graphs = joined_graphs(list(graphs_of(iterate(path, Problems()), leftover)))
    frames, _ = read_capture(path)
    assert (len(graphs), leftover.num_frames, len(frames)) == (901, 69, 90_169)
    some = list(range(0, 901, 90))
    begins = [each * 100 for each in range(901)]
    assert graphs.first_frames.tolist() == begins
    nodes = np.concatenate([[0], np.cumsum(graphs.num_nodes)])
    for number in some:
        ids, x, *_ = slow_graph(frames, number * 100, 100)
        assert graphs.node_ids[nodes[number] : nodes[number + 1]].tolist() == ids
        np.testing.assert_allclose(graphs.x[nodes[number] : nodes[number + 1]], x, rtol=1e-5)


def test_road_without_times(shared_data):
    """ROAD's masquerades as they lie here have no times; windows need none."""
    for path in sorted(shared_data("can/road").glob("*.npz")):
        with np.load(path, allow_pickle=False) as arrays:
            count = len(arrays["can_id"])
            frames = Frames(
                np.zeros(count),
                arrays["can_id"].astype(np.uint32),
                arrays["data"].astype(np.uint8),
                np.full(count, 8, np.uint8),
                arrays["label"].astype(np.int8),
            )
        graphs = joined_graphs(list(graphs_of([frames], Leftover())))
        assert len(graphs) == count // 100
        assert 0 < graphs.labels.sum() < len(graphs)
