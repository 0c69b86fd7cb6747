"""How edges of a node are shared out: a node of more than SPAN of them is the work of several programs.

Slots are cut into windows of SPAN, which is a function of sizes alone. A program has a node; before those come programs
of windows, each for the middle or the end of a hub (a node with more than SPAN stored edges) that began in a window
before: the node's own program ends where its first window does. In a window at most one hub begins, and at most one
goes on from the window before; so each part has a row of its own among the partial sums, which the kernels here add
up in the order of the edges. No table is made, nothing is waited for, and a node of few edges costs nothing.
"""

import triton
import triton.language as tl

from graphmill.nn.attention.triton_tiles import put


@triton.jit
def node_at(indptr, slot, num_nodes):
    """The node that stored edge `slot` belongs to; num_nodes: it belongs to none."""
    low, high = num_nodes * 0, num_nodes
    while low < high:
        middle = (low + high) // 2
        if tl.load(indptr + middle + 1) <= slot:
            low = middle + 1
        else:
            high = middle
    return low


@triton.jit
def part_of(indptr, num_nodes, num_loops, num_windows, SPAN: tl.constexpr):
    """A program's share of a node's edges, its loop after them all.

    Returns (node, first slot, number stored, start, end, row): the edges [start, end) counted from the first slot, and
    the part's row among the partial sums, or -1 where it has all edges of its node. Nothing to do: start > end.
    """
    program = tl.program_id(0).to(tl.int64)
    nodes = num_nodes.to(tl.int64)
    node = program - num_windows
    slot = (program + 1) * SPAN
    if node < 0:
        node = node_at(indptr, slot, nodes)
    is_node = node < nodes
    first = tl.load(indptr + node, mask=is_node, other=0)
    num_stored = (tl.load(indptr + node + 1, mask=is_node, other=0) - first).to(tl.int32)
    degree = num_stored + (node < num_loops).to(tl.int32)
    start, end, row = 0, degree, num_nodes.to(tl.int64) * 0 - 1
    if program < num_windows:
        row = num_windows + program
        start = (slot - first).to(tl.int32)
        end = tl.where(start + SPAN < num_stored, start + SPAN, degree)
        if (num_stored <= SPAN) | (start == 0):  # of a node that has a program, or whose own begins here
            end = start - 1
    elif num_stored > SPAN:
        row = first // SPAN
        end = ((row + 1) * SPAN - first).to(tl.int32)
    return node, first, num_stored, start, end, row


@triton.jit
def hub_of(indptr, num_nodes, num_windows, SPAN: tl.constexpr):
    """(node, number of parts, window) of the hub that begins in a program's window; 0 parts: none does."""
    window = tl.program_id(0).to(tl.int64)
    nodes = num_nodes.to(tl.int64)
    node = node_at(indptr, (window + 1) * SPAN, nodes)
    is_node = node < nodes
    first = tl.load(indptr + node, mask=is_node, other=0)
    end = tl.load(indptr + node + 1, mask=is_node, other=0)
    parts = tl.where((first >= window * SPAN) & (end - first > SPAN), (end - 1) // SPAN - window + 1, 0)
    return node, parts, window


@triton.jit
def rows_of_parts(start, parts, window, num_windows, ROWS: tl.constexpr):
    """The rows of ROWS parts of a hub from the `start`-th on, and which of them there are."""
    part = start + tl.arange(0, ROWS)
    return tl.where(part == 0, window, num_windows + window + part - 1), part < parts


@triton.jit(do_not_specialize=["num_nodes", "num_windows"])
def join_softmax(
    indptr, sums, peaks, totals, out, exact, lse, num_nodes, num_windows,
    HEADS: tl.constexpr, CHANNELS: tl.constexpr, SPAN: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Out and log-sum-exp of hubs, a head and COLUMNS of its channels a program, from those of their parts."""
    node, parts, window = hub_of(indptr, num_nodes, num_windows, SPAN)
    if parts > 0:
        head = tl.program_id(1)
        channels = tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
        is_channel = channels < CHANNELS
        peak, total = float("-inf"), 0.0
        sum_ = tl.zeros([COLUMNS], tl.float32)
        for start in range(0, parts, ROWS):
            rows, is_row = rows_of_parts(start, parts, window, num_windows, ROWS)
            of_parts = tl.load(peaks + rows * HEADS + head, mask=is_row, other=float("-inf"))
            most = tl.maximum(peak, tl.max(of_parts, 0))
            shrink = tl.exp(peak - most)
            powers = tl.exp(of_parts - most)
            total = total * shrink + tl.sum(powers * tl.load(totals + rows * HEADS + head, mask=is_row, other=0.0), 0)
            places = sums + (rows * HEADS + head)[:, None] * CHANNELS + channels[None, :]
            tile = tl.load(places, mask=is_row[:, None] & is_channel[None, :], other=0.0)
            sum_ = sum_ * shrink + tl.sum(tile * powers[:, None], 0)
            peak = most
        sum_ = sum_ / total
        place = (node * HEADS + head) * CHANNELS + channels
        put(out + place, sum_, is_channel)
        if exact is not None:
            tl.store(exact + place, sum_, mask=is_channel)
        tl.store(lse + node * HEADS + head, peak + tl.log(total), mask=tl.program_id(2) == 0)


@triton.jit(do_not_specialize=["num_nodes", "num_windows"])
def join_sums(
    indptr, sums, out, num_nodes, num_windows,
    WIDTH: tl.constexpr, SPAN: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The sums of hubs' parts, COLUMNS of a row of `out` a program."""
    node, parts, window = hub_of(indptr, num_nodes, num_windows, SPAN)
    if parts > 0:
        columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
        is_column = columns < WIDTH
        sum_ = tl.zeros([COLUMNS], tl.float32)
        for start in range(0, parts, ROWS):
            rows, is_row = rows_of_parts(start, parts, window, num_windows, ROWS)
            places = sums + (rows * WIDTH)[:, None] + columns[None, :]
            sum_ += tl.sum(tl.load(places, mask=is_row[:, None] & is_column[None, :], other=0.0), 0)
        put(out + node * WIDTH + columns, sum_, is_column)
