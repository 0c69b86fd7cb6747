"""Ranks that send each other messages of lengths that only the sender knows.

python messages.py MEETING_FILE OUT_FOLDER DATASET_ROOT NUM_PARTS
"""

import json
import os
import sys
from pathlib import Path

import numpy as np
import torch.distributed as dist

from graphmill.runtime.process import leave
from graphmill.sample.distributed.messages import Exchange, KnownRows
from graphmill.sample.distributed.wire import Wire

RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def message(number: int, length: int, sender: int, receiver: int) -> np.ndarray:
    return np.random.default_rng((number, sender, receiver)).integers(0, 2**31, length).astype(np.int32)


def length_of(number: int, sender: int, receiver: int) -> int:
    """At first even, then one that is much longer for one pair, then anything, nothing included."""
    if number < 20:
        return 1000 + (number * 7 + sender) % 20
    if number == 20:
        return 50_000 if (sender, receiver) == (0, 1) else 1000
    return int(np.random.default_rng((number, sender, receiver, 1)).choice([0, 1, 3, 77, 4000, 90_000]))


def share_of_padding(wire: Wire) -> float:
    """What is sent beside the messages, as a share of them: one long message, as of an evaluation, then short ones."""
    exchange, before = Exchange(wire), wire.received_bytes
    lengths = [1_000_000, *[20_000] * 40]
    for length in lengths:
        exchange.swap([np.zeros(length, dtype=np.uint8)] * RANKS)
    wanted = sum(lengths) * (RANKS - 1)
    return (wire.received_bytes - before) / wanted - 1 if wanted else 0.0


def rows(number: int, row_bytes: int, sender: int, receiver: int) -> np.ndarray:
    """Of which both ends know how many there are: none to itself."""
    draws = np.random.default_rng((number, sender, receiver, 2))
    count = 0 if sender == receiver else int(draws.choice([0, 1, 50]))
    return draws.integers(0, 256, (count, row_bytes)).astype(np.uint8)


def wrong_behind_rows(wire: Wire, row_bytes: int) -> list[tuple[int, int]]:
    """Where rows that travel in front of messages, or the messages, are not what was sent."""
    exchange, wrong = Exchange(wire), []
    for number in range(12):
        to = [rows(number, row_bytes, RANK, rank) for rank in range(RANKS)]
        of = [rows(number, row_bytes, rank, RANK) for rank in range(RANKS)]

        def write(rank: int, memory: np.ndarray, to: list[np.ndarray] = to) -> None:
            memory[:] = to[rank].reshape(-1)

        known = KnownRows(row_bytes, [len(its) for its in to], [len(its) for its in of], write)
        messages = [message(number, length_of(20 + number, RANK, rank), RANK, rank) for rank in range(RANKS)]
        found = exchange.swap_sections(known, [messages, [its[:3] for its in messages]])
        for sender, first in enumerate(found.first_rows):
            expected = message(number, length_of(20 + number, sender, RANK), sender, RANK)
            its = found.table[first : first + len(of[sender])]
            came = [section.view(np.int32).tolist() for section in (of_ranks[sender] for of_ranks in found.sections)]
            if came != [expected.tolist(), expected[:3].tolist()] or not np.array_equal(its, of[sender]):
                wrong.append((number, sender))
    return wrong


def main() -> None:
    dist.init_process_group("gloo", store=dist.FileStore(sys.argv[1], RANKS), rank=RANK, world_size=RANKS)
    wire = Wire.between(RANK, RANKS)
    exchange, wrong, swaps = Exchange(wire), [], []
    for number in range(60):
        before = wire.num_swaps + wire.num_direct
        found = exchange.swap([message(number, length_of(number, RANK, to), RANK, to) for to in range(RANKS)])
        swaps.append(wire.num_swaps + wire.num_direct - before)
        for sender, its in enumerate(found):
            expected = message(number, length_of(number, sender, RANK), sender, RANK)
            if not np.array_equal(its.view(np.int32), expected):
                wrong.append((number, sender, len(its), len(expected)))
    told = {"wrong": wrong, "swaps_of_even": max(swaps[3:20]), "swaps_of_sudden": swaps[20]}
    told["wrong_behind_rows"] = [wrong_behind_rows(wire, row_bytes) for row_bytes in (1, 6, 256)]
    told["share_of_padding"] = share_of_padding(wire)
    Path(sys.argv[2], f"{RANK}.json").write_text(json.dumps(told))
    dist.barrier()
    dist.destroy_process_group()
    leave(0)


main()
