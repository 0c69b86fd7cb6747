"""A sampler and a trainer as two threads: near each other, and over the network."""

import os
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from queue import Queue
from threading import Event

import numpy as np
import pytest
import torch
from waiting import HANG_S

from graphmill.graph.batch import Block, DenseRows, MiniBatch
from graphmill.graph.sampled import SeedIds, Seeds
from graphmill.runtime.spans import Spans
from graphmill.sample.service import meeting
from graphmill.sample.service.frames import Frame, batch_of, frame_of
from graphmill.sample.service.link import Link, LostPeerError, MessageType
from graphmill.sample.service.meeting import find_sampler, num_memories, wait_for_trainers
from graphmill.sample.service.memory import SharedMemory
from graphmill.sample.service.served import SamplerClient

PREFETCH = 2


class Board:
    """What processes tell each other, of two threads."""

    def __init__(self) -> None:
        self.said: Queue[str] = Queue()

    def put(self, key: str, word: str) -> None:
        assert key == "sampler 0"
        self.said.put(word)

    def derived(self, purpose: str) -> str:
        return f"{purpose:x<32}"


SECRET = Board().derived("sampler 0")


def forever() -> bool:
    return True


@pytest.fixture(params=["near", "far"])
def ends(request, monkeypatch) -> Iterator[tuple[Link, Link]]:
    """The sampler's and the trainer's."""
    if request.param == "far":
        places = iter(["here", "there"])
        monkeypatch.setattr(meeting, "_place", lambda: next(places))
    board, names = Board(), ["", "", "", "rank 3"]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait_for_trainers, board, 0, [3], names, PREFETCH, "127.0.0.1", forever)
        trainer = find_sampler(board.said.get(), SECRET, 3, "sampler 0", PREFETCH)
        (sampler,) = waiting.result()
    assert trainer.is_near is sampler.is_near is (request.param == "near")
    yield sampler, trainer
    sampler.close()
    trainer.close()


def batch(number: int, size: int = 10) -> MiniBatch:
    ids = torch.arange(number, number + size)
    block = Block(torch.tensor([0, 1]), torch.tensor([number], dtype=torch.int32))
    x = torch.full((size, 3), float(number))
    seeds, none = Seeds(0, number, SeedIds(ids.numpy())), torch.empty(0, 0)
    return MiniBatch(seeds, ids, (block,), none, (size, 0), (1,), DenseRows(x), ids, torch.empty(0, dtype=torch.int64))


def serve(link: Link, made: Callable[[int], MiniBatch], count: int) -> int:
    """What a sampler does in an epoch; returns how many batches it was told were used."""
    while (
        message := link.hear()
    ).word is MessageType.RELEASE:  # of a batch that was under way when the trainer stopped
        pass
    assert message.word is MessageType.EPOCH
    free, number = len(link.memories), 0
    while number < count:
        while free == 0:
            message = link.hear()
            if message.word is MessageType.STOP:
                break
            assert message.word is MessageType.RELEASE
            free += 1
        else:
            link.hand_over(frame_of(made(number)), number % len(link.memories), 0)
            free, number = free - 1, number + 1
            continue
        break
    else:
        message = link.hear()
        while message.word is MessageType.RELEASE:
            message = link.hear()
    assert message.word is MessageType.STOP
    link.tell(MessageType.END, frame=Frame((), (torch.tensor([1.0, 2.0, 4.0, 8.0], dtype=torch.float64),)))
    return message.numbers[0]


@pytest.mark.parametrize("used", [0, 1, 5, 30])
def test_batches_come_in_order_until_there_are_enough(ends, used):
    """However few are taken, both ends come to the end of the epoch, and the next one begins afresh."""
    sampler, trainer = ends
    served = SamplerClient(trainer, PREFETCH, True, Spans(), pytest.fail)
    for _ in range(2):
        with ThreadPoolExecutor(1) as pool:
            told = pool.submit(serve, sampler, lambda number: batch(number, 10 + 1000 * (number % 3)), 30)
            batches = served.batches(0, 0, 30)
            for number in range(used):
                found = next(batches)
                assert found.seeds.step == number
                assert float(found.inputs.x.mean()) == number
                np.testing.assert_array_equal(found.seeds.ids, found.labels.numpy())
            batches.close()
            if used:
                assert told.result() == used
                assert served.spent == [1.0, 2.0, 4.0, 8.0]
            else:  # nothing was asked for
                trainer.tell(MessageType.EPOCH)
                trainer.tell(MessageType.STOP)
                assert told.result() == 0
                while (message := trainer.hear()).word is MessageType.BATCH:
                    trainer.received(message)
                trainer.received(message)
    if used:
        assert served.spans.seconds["sample"] == 2.0
        assert served.spans.seconds["gather"] == 4.0


def test_memory_is_written_again_only_when_its_batch_is_done(ends):
    """The one that is computed on, and the one that is copied to a GPU meanwhile, stay as they are."""
    sampler, trainer = ends
    served = SamplerClient(trainer, PREFETCH, True, Spans(), pytest.fail)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(serve, sampler, batch, 40)
        held: list[MiniBatch] = []
        for number, found in enumerate(served.batches(0, 0, 40)):
            held = [*held[-1:], found]
            assert [float(each.inputs.x.mean()) for each in held] == list(range(number + 1))[-2:]


def test_memory_is_not_written_while_its_batch_is_still_being_sent(ends):
    """Far away nothing is read yet, and a batch fills the socket: the next one in the same memory has to wait."""
    sampler, trainer = ends
    if sampler.is_near:
        pytest.skip("nothing is sent to where the memory is shared")
    first, second = (frame_of(batch(number, size=2**20)) for number in (1, 2))
    with ThreadPoolExecutor(1) as pool:
        sampler.hand_over(first, 0, 0)
        waiting = pool.submit(sampler.hand_over, second, 0, 0)
        with suppress(TimeoutError):
            waiting.result(timeout=0.5)
        received = [batch_of(trainer.received(trainer.hear())).inputs.x.unique().tolist() for _ in range(2)]
        waiting.result()
    assert received == [[1.0], [2.0]]


class Stopped(Exception):
    """As the trainers agree."""


@pytest.mark.parametrize("ticks", [0, 3])
def test_an_evaluation_goes_on_or_is_given_up(ends, ticks):
    sampler, trainer = ends
    calls: list[int] = []

    def pause() -> None:
        calls.append(1)
        if len(calls) == 3:
            raise Stopped

    def evaluate() -> list[str]:
        message = sampler.hear()
        mine, nodes, *weights = sampler.received(message).tensors
        assert (mine.tolist(), nodes.tolist(), [w.tolist() for w in weights]) == ([1], [0, 1], [[0.5]])
        heard = []
        for _ in range(ticks):
            sampler.tell(MessageType.TICK)
            heard.append(sampler.hear().word.name)
        if ticks < 3:
            sampler.tell(MessageType.FRAME, frame=Frame((7,), (torch.ones(1, 2),)))
        return heard

    served = SamplerClient(trainer, PREFETCH, True, Spans(), pytest.fail)
    asked = (torch.tensor([0, 1]), torch.tensor([1]), [torch.tensor([0.5])], pause, Stopped)
    with ThreadPoolExecutor(1) as pool:
        heard = pool.submit(evaluate)
        if ticks < 3:
            assert served.logits(*asked).tolist() == [[1.0, 1.0]]
            assert served.evaluation_bytes == 7
        else:
            with pytest.raises(Stopped):
                served.logits(*asked)
        assert heard.result() == ["GO", "GO", "ABORT"][:ticks]


def test_a_wish_to_stop_arrives_with_a_batch(ends):
    sampler, trainer = ends
    wishes: list[str] = []
    served = SamplerClient(trainer, PREFETCH, True, Spans(), wishes.append)
    batches = served.batches(0, 0, 1)
    sampler.hand_over(frame_of(batch(0)), 0, 1)
    sampler.tell(MessageType.END, frame=Frame((), (torch.zeros(3),)))
    next(batches)
    batches.close()
    assert wishes == ["sampler 0 was asked to stop"]


@pytest.mark.parametrize("is_told", [True, False])
def test_a_peer_that_is_gone_is_named(ends, is_told):
    sampler, trainer = ends
    sampler.channel.shutdown(socket.SHUT_RDWR)
    with pytest.raises(LostPeerError, match="sampler 0 is gone"):
        (
            lambda: [trainer.tell(MessageType.GO) for _ in range(1000)] if is_told else trainer.hear()
        )()  # some may be taken


def was_dismissed(stranger: socket.socket) -> bool:
    try:
        return stranger.recv(1) == b""
    except ConnectionResetError:  # what it said was not read
        return True


def test_who_does_not_know_the_secret_is_left_outside_and_holds_up_nobody():
    """Most of them say nothing, or too little: one after another they would take longer than a test may."""
    board = Board()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait_for_trainers, board, 0, [0], ["rank 0"], PREFETCH, "127.0.0.1", forever)
        offered = board.said.get()
        assert SECRET not in offered
        port = meeting.json.loads(offered)["port"]
        strangers = [socket.create_connection(("127.0.0.1", port)) for _ in range(50)]
        strangers[0].sendall(b"x" * 40)
        strangers[1].sendall(b"x")
        trainer = find_sampler(offered, SECRET, 0, "sampler 0", PREFETCH)
        (sampler,) = waiting.result(HANG_S)
    assert all(map(was_dismissed, strangers))
    trainer.tell(MessageType.SCALE)
    assert sampler.hear().word is MessageType.SCALE
    for end in (sampler, trainer, *strangers):
        end.close()


def test_of_many_strangers_the_oldest_go_and_who_comes_twice_is_sent_away():
    board, over = Board(), Event()
    names = ["rank 0", "rank 1"]
    with ThreadPoolExecutor(1) as pool, ExitStack() as left:
        left.callback(over.set)  # a failure is no reason to wait for a trainer that does not come
        waiting = pool.submit(
            wait_for_trainers, board, 0, [0, 1], names, PREFETCH, "127.0.0.1", lambda: not over.is_set()
        )
        offered = board.said.get()
        at = ("127.0.0.1", meeting.json.loads(offered)["port"])
        strangers = [left.enter_context(socket.create_connection(at)) for _ in range(meeting._STRANGERS + 10)]
        strangers[0].settimeout(meeting._GREETED_WITHIN_S / 2)  # it would go by itself after all of that
        assert was_dismissed(strangers[0])
        first = find_sampler(offered, SECRET, 0, "sampler 0", PREFETCH)
        left.callback(first.close)
        again = left.enter_context(socket.create_connection(at))
        again.settimeout(HANG_S)
        again.sendall(meeting._GREETING.pack(SECRET.encode(), 0))
        assert was_dismissed(again)
        second = find_sampler(offered, SECRET, 1, "sampler 0", PREFETCH)
        left.callback(second.close)
        found = waiting.result(HANG_S)
        for sampler in found:
            left.callback(sampler.close)
        first.tell(MessageType.SCALE)
        assert found[0].hear().word is MessageType.SCALE


def test_trainers_that_do_not_come_are_not_waited_for_without_end():
    looks = iter([True, True, False])
    assert wait_for_trainers(Board(), 0, [0], ["rank 0"], PREFETCH, "127.0.0.1", lambda: next(looks)) == []


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_memory_grows_and_goes():
    """What it gave before stays while it is used; nothing is left of it when nobody maps it."""
    before = open_files()
    memory = SharedMemory.make()
    other = SharedMemory(os.dup(memory.fd))
    first = memory.room(10)
    first[:] = 1
    large = memory.room(1 << 20)
    large[-1] = 7
    assert other.bytes(10).tolist() == [1] * 10
    assert other.bytes(1 << 20)[-1] == 7
    first[0] = 3
    assert large[0] == 3
    memory.close()
    other.close()
    del first, large, memory, other  # a mapping holds a descriptor of its own
    assert open_files() == before


def test_as_many_batches_ahead_as_a_rank_makes_for_itself():
    assert num_memories(PREFETCH) == PREFETCH + 3
