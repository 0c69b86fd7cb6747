"""What a process that samples does: it holds the graph, makes the batches of the trainers it serves, and evaluates.

One thread makes batches and hears what trainers say; it need not hear before it has no credit for more, and so makes a
batch while they compute on the ones before it.
"""

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import cycle

import torch

from graphmill.base import exits
from graphmill.record.endings import ending_of
from graphmill.record.events import EventWriter, Finish, Served, Start, Stop
from graphmill.runtime.machine import peak_bytes
from graphmill.sample.service.frames import Frame, frame_of
from graphmill.sample.service.link import Link, LostPeerError, Message, MessageType
from graphmill.sample.service.served import CLOCKS
from graphmill.spec.plan import Plan
from graphmill.sync.group import Group
from graphmill.sync.pause import EvaluationStopped
from graphmill.tasks.build import build_server
from graphmill.tasks.task import ServesBatches
from graphmill.train.assemble import RankContext, plan_over_data


@dataclass(slots=True)
class Credit:
    """Account of one trainer in an epoch: batches that may still be handed over, and how many it reported as used."""

    link: Link
    free: int
    number: int = 0  # of the memory of the next batch
    num_used: int | None = None

    def hear(self) -> None:
        """What the trainer says next."""
        message = self.link.hear()
        if message.word is MessageType.STOP:
            self.num_used = message.numbers[0]
        elif message.word is MessageType.RELEASE:
            self.free += 1
        else:
            raise RuntimeError(f"{self.link.peer} said {message.word.name} in an epoch")


@dataclass(slots=True)
class SamplerServer:
    """Serves until the trainers leave."""

    plan: Plan
    group: Group  # of the samplers
    server: ServesBatches
    links: list[Link]
    events: EventWriter
    wishes_to_stop: Callable[[], bool]
    alive: Callable[[], None]
    num_bytes: int = field(default=0, init=False)  # of batches, handed over in this epoch

    def serve(self) -> int:
        """Do what the trainers ask for, all of them the same. Returns the exit status that they leave with."""
        while True:
            requests = [_request(link) for link in self.links]
            self.alive()
            if len({message.word for message in requests}) > 1:
                words = ", ".join(f"{a.word.name} by {b.peer}" for a, b in zip(requests, self.links, strict=True))
                raise RuntimeError(f"the trainers want different things: {words}")
            match requests[0].word:
                case MessageType.EPOCH:
                    self._epoch(requests[0].numbers[0], requests[0].numbers[1])
                case MessageType.EVALUATE:
                    self._evaluate(requests)
                case MessageType.SCALE:
                    self._tell_all(MessageType.FRAME, Frame((), self.server.scale()))
                case MessageType.BYE:
                    return requests[0].numbers[0]
                case other:
                    raise RuntimeError(f"nothing is under way that {other.name} could be about")

    def _epoch(self, epoch: int, first_step: int) -> None:
        """Hand batches over until the trainers have enough.

        They stop at the same step, but samplers have got differently far by then. Samplers that make batches together
        go on to where any of them may have begun: `furthest`.
        """
        self.server.begin()
        self.num_bytes = 0
        credits = [Credit(link, len(link.memories)) for link in self.links]
        for window, made in self.server.windows(epoch, first_step):
            stopped = [credit.num_used for credit in credits if credit.num_used is not None]
            if stopped:
                furthest = stopped[0] + 2 * len(self.links[0].memories) + 1
                if not self.server.is_shared or window.start - first_step > furthest:
                    break
            for credit, batch in zip(cycle(credits), made, strict=False):
                self._hand_over(credit, frame_of(batch))
                self.alive()
        for credit in credits:
            while credit.num_used is None:
                credit.hear()
        if len({credit.num_used for credit in credits}) > 1:
            raise RuntimeError(f"trainers used {[credit.num_used for credit in credits]} batches: one lost step")
        self._tell_end(epoch, credits[0].num_used or 0)

    def _hand_over(self, credit: Credit, frame: Frame) -> None:
        with self.group.spans("wait"):
            while not credit.free and credit.num_used is None:
                credit.hear()
        if credit.num_used is not None:
            return
        with self.group.spans("copy"):
            credit.link.hand_over(frame, credit.number, int(self.wishes_to_stop()))
        credit.free, credit.number = credit.free - 1, (credit.number + 1) % len(credit.link.memories)
        self.num_bytes += frame.num_bytes

    def _tell_end(self, epoch: int, num_used: int) -> None:
        said = self.server.spent()
        self._tell_all(MessageType.END, Frame((), (said,)))
        seconds = dict(zip(CLOCKS, said.tolist(), strict=False))
        clocks = {f"{name}_s": round(each, 6) for name, each in seconds.items()}
        self.events.write(Served(epoch=epoch + 1, steps=num_used, bytes=self.num_bytes, clocks=clocks))

    def _evaluate(self, requests: list[Message]) -> None:
        """Logits of what the first trainer asks for, of all samplers together; each trainer gets those of its nodes."""
        frames = [link.received(message) for link, message in zip(self.links, requests, strict=True)]
        nodes, *weights = frames[0].tensors[1:]
        try:
            with self.group.spans("evaluate"):
                logits = self.server.logits(nodes, weights, self._pause)
        except EvaluationStopped:
            return
        received = self.server.evaluation_bytes()
        for link, frame in zip(self.links, frames, strict=True):
            mine = logits[torch.searchsorted(nodes, frame.tensors[0])]
            link.tell(MessageType.FRAME, frame=Frame((received,), (mine,)))

    def _pause(self) -> None:
        """Let the trainers agree whether an evaluation goes on. All samplers hear the same."""
        self.alive()
        for link in self.links:
            link.tell(MessageType.TICK, 0, 0, int(self.wishes_to_stop()))
        if any([link.hear().word is MessageType.ABORT for link in self.links]):  # of all: a list  # noqa: C419
            raise EvaluationStopped

    def _tell_all(self, word: MessageType, frame: Frame) -> None:
        for link in self.links:
            link.tell(word, frame=frame)


def serve(context: RankContext, links: list[Link], alive: Callable[[], None], *, resumed: bool) -> int:
    """Serve the trainers of a run until they are done. Returns the exit status that is theirs, too."""
    plan, role_rank, events, roles = context.plan, context.role_rank, context.events, context.world.roles
    assert roles is not None, "a run without roles has no sampler"
    group = Group(role_rank.rank, role_rank.num_ranks, torch.device("cpu"), num_hosts=role_rank.num_hosts)
    plan, data = plan_over_data(context)
    server = build_server(plan, group, roles.trainers_of(role_rank.rank), context.world.role_rank(0))
    start = Start(
        resumed=resumed,
        steps_done=0,
        parameters=0,
        hostname=socket.gethostname(),
        pid=os.getpid(),
        world_size=role_rank.num_ranks,
        backend="gloo" if role_rank.num_ranks > 1 else None,
        plan_hash=context.folder.plan_hash(),
        process_s=context.start_s,
        data=data,
    )
    events.write(start)
    sampler = SamplerServer(plan, group, server, links, events, lambda: context.stop.requested, alive)
    status = sampler.serve()
    ending = ending_of(status).name
    if status == exits.DONE:
        events.write(Finish(steps_done=0, status=ending, peak_rss_mib=peak_bytes() / (1 << 20)))
    else:
        events.write(Stop(steps_done=0, status=ending))
    for link in links:
        link.tell(MessageType.BYE)
    for link in links:  # srun ends the others as soon as one exits with 75
        with suppress(LostPeerError):
            link.hear()
        link.close()
    return status


def _request(link: Link) -> Message:
    """What a trainer asks for next. A batch that was under way when it stopped may be released after that."""
    while (message := link.hear()).word is MessageType.RELEASE:
        pass
    return message
