"""What a rank runs: `python -m graphmill.train.worker RUN_FOLDER [--resume]`, started by the launcher.

Exit statuses: `graphmill.record.endings`.
"""

import gc
import os

from graphmill.base.messages import hush_torch
from graphmill.base.names import counted
from graphmill.runtime.stop import end_when_interrupted

if __name__ == "__main__":  # before torch is imported
    end_when_interrupted()
    hush_torch(os.environ)
    gc.disable()  # until `work`: what is imported is no garbage, and to look for some takes a fifth of the time

import argparse
import errno
import logging
import signal
import socket
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Final

import torch
import torch.distributed as dist

from graphmill import _native
from graphmill.base import exits
from graphmill.base.errors import UnreadableError, UserError
from graphmill.base.messages import show_messages
from graphmill.base.retries import is_io_error
from graphmill.record.checksums import seal_of
from graphmill.record.documents import BaselineScores, Outcome
from graphmill.record.endings import ENDINGS, SAVED, EndingName
from graphmill.record.evaluations import read_evaluations, recorded_baselines
from graphmill.record.events import EventWriter, Failure, Finish, Initialised, Start, Stop, events_in
from graphmill.record.judged import lost_to, not_better_than_it_began
from graphmill.record.run_folder import RunFolder, best_effort_write
from graphmill.runtime.machine import peak_bytes
from graphmill.runtime.process import allow_open_files, leave, seconds_since_start
from graphmill.runtime.rank import Rank, current_rank
from graphmill.runtime.snapshot import import_from_snapshot, own_code
from graphmill.runtime.stop import SIGNALS, StopRequest
from graphmill.runtime.trust import refuse_foreign_code
from graphmill.sample.service.link import Link, LostPeerError, MessageType
from graphmill.spec.kinds.kind import AnyKind
from graphmill.spec.world import World, spans_of, spans_text
from graphmill.sync.pause import EvaluationStopped
from graphmill.tasks.task import Measures
from graphmill.train.assemble import RankContext, build
from graphmill.train.baselines_after import score_after
from graphmill.train.data_check import DataCheck, checked_data
from graphmill.train.device import device_of
from graphmill.train.loop import Training
from graphmill.train.rendezvous import rendezvous
from graphmill.train.resume import restore
from graphmill.train.sampler import serve
from graphmill.train.store import PortBusyError
from graphmill.train.words import NotMetError, Words

_log = logging.getLogger(__name__)

_CANNOT_BE_WRITTEN: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)  # no matter where in the code
_MOST_SCORES: Final = 6  # in the last line; outcome.json holds all


def main(arguments: Sequence[str] | None = None) -> int:
    """Train one rank's share of the run in RUN_FOLDER."""
    parser = argparse.ArgumentParser(prog="python -m graphmill.train.worker", description=__doc__)
    parser.add_argument("run_folder", type=Path)
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args(arguments)
    show_messages()
    start_s = seconds_since_start()
    try:
        allow_open_files()
        import_from_snapshot(os.environ)
        folder, rank = RunFolder.open(options.run_folder), current_rank(os.environ)
        return work(folder, rank, resume=options.resume, start_s=start_s)
    except UserError as error:
        _log.error(f"{error}")
        return exits.BAD_REQUEST
    except (UnreadableError, OSError) as error:
        if not is_io_error(error):
            raise
        _log.error(f"{error}")
        return exits.IO_ERROR
    finally:  # python restores its handlers at exit: a late signal must not kill a rank that is done
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)


def work(folder: RunFolder, rank: Rank, *, resume: bool, words: Words | None = None, start_s: float = 0.0) -> int:
    """Train and write the outcome; the process group lives as long as this call. Returns the exit status.

    The ranks have met in the store of `words`; None: they do so now. `start_s`: how long starting this
    process took; ending the job takes that once more.
    """
    gc.freeze()  # a collection need not look through what was imported, as at the end
    gc.enable()
    world = folder.world()
    _refuse_other_number(folder, world, rank.world_size)
    plan = folder.read_plan().model_copy(update={"threads": world.threads})
    refuse_foreign_code(plan.model_dump(mode="json"))
    if folder.is_done():
        return exits.DONE
    stop = StopRequest()
    stop.note_warnings()
    torch.set_num_threads(plan.threads)
    _native.keep_freed_memory()
    context_of = partial(RankContext, folder, plan, world, rank, stop)
    with ExitStack() as until_the_end:
        role_rank = world.role_rank(rank.rank)
        events = until_the_end.enter_context(EventWriter(folder.events_path_of(role_rank), rank=role_rank.rank))
        code = exits.ANSWER_IS_NO
        try:
            code = _run(context_of(events, words, start_s), resume=resume)
        finally:
            _leave_group(all_leave=code in SAVED)
        return code


def _refuse_other_number(folder: RunFolder, world: World, started: int) -> None:
    if started == world.processes:
        return
    if world.samplers:
        raise UserError(
            f"the latest attempt of {folder.path} is of {world.ranks} ranks and {world.samplers} samplers, together"
            f" {world.processes} processes, but {started} were started",
            fix=f"start {world.processes} processes; `graphmill train --resume {folder.path} --ranks N` continues with"
            " another number of ranks",
        )
    raise UserError(
        f"the latest attempt of {folder.path} is of {world.ranks} ranks, but {started} were started",
        fix=f"start {world.ranks} ranks, or continue with another number: `graphmill train --resume {folder.path}"
        f" --ranks {started}`",
    )


def _leave_group(*, all_leave: bool) -> None:
    """`all_leave`: the other ranks leave, too. Destroying waits for what is exchanged: a rank that failed skips it."""
    gc.collect()  # nothing may hold the process group when it is destroyed
    if dist.is_initialized() and (all_leave or dist.get_world_size() == 1):
        dist.destroy_process_group()


def _failed(context: RankContext, training: Training | None, status: EndingName, message: str, began: float) -> int:
    """Record what went wrong, in the events and, on rank 0, as the outcome.

    An unwritable run folder may be the cause: the exit status still reports it.
    """
    code = ENDINGS[status].exit_status
    with best_effort_write():
        context.events.write(Failure(message=message, exit_code=code))
    if context.writes_records:
        with best_effort_write():
            context.folder.write_outcome(_outcome(training, status, message, began))
    return code


def _run(context: RankContext, *, resume: bool) -> int:
    """Train or sample, whatever the role of this process is, and record how that ended."""
    began = time.perf_counter()
    training: Training | None = None

    def fail(status: EndingName, message: str) -> int:
        return _failed(context, training, status, message, began)

    def lost(why: str) -> None:
        _log.error(why)
        fail("lost", why)

    try:
        is_sampler = context.role_rank.role == "sampler"
        if is_sampler:  # before anything looks for GPUs: they are the trainers', and a process that looks takes memory
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        device = torch.device("cpu") if is_sampler else device_of(context.plan, context.role_rank.local_rank)
        with rendezvous(context, lost) as peers, checked_data(context) as check:
            context.stop.install()  # not before: one that waits for a rank that was ended would not hear of it
            _heed_the_file(context)

            def alive() -> None:
                peers.alive()
                check.refuse_damaged()

            if is_sampler:
                return serve(context, peers.links, alive, resumed=resume)
            training = build(context, device, alive, *peers.links)
            return _train(training, peers.links, resume=resume, began=began, check=check)
    except KeyboardInterrupt:
        return fail("interrupted", "a second interrupt ended the run at once")
    except (PortBusyError, NotMetError) as error:
        return _never_met(context, error, began)
    except UserError as error:
        fail("bad_request", str(error))
        raise
    except Exception as error:  # noqa: BLE001  # whatever it is, the run folder must record it
        if is_io_error(error):  # on any file, wherever it was raised
            _log.error(f"{error}")
            return fail("io_error", str(error))
        is_known = isinstance(error, LostPeerError) or (
            isinstance(error, OSError) and error.errno in _CANNOT_BE_WRITTEN
        )
        if not is_known:
            _print_traceback()
        if isinstance(error, OSError | LostPeerError):
            _log.error(f"{error}")
        return fail("failed", f"{type(error).__name__}: {error}")


def _heed_the_file(context: RankContext) -> None:
    """`graphmill stop` leaves a file before it sends a signal, which may come before a process that can take it."""
    attempts = context.folder.attempts()
    if attempts and attempts[-1].job_id and context.folder.is_asked_to_stop():
        context.stop.ask("stopped on request (graphmill stop)")


def _print_traceback() -> None:
    """Print the traceback of the error being handled. Its log may be on the disk that fails."""
    with suppress(OSError):
        traceback.print_exc()


def _never_met(context: RankContext, error: PortBusyError | NotMetError, began: float) -> int:
    """The ranks did not come together. All that was saved before is a checkpoint still."""
    _log.error(f"{error}")
    return _failed(context, None, "port_busy" if isinstance(error, PortBusyError) else "lost", f"{error}", began)


def _train(
    training: Training, links: Sequence[Link] = (), *, resume: bool, began: float, check: DataCheck | None = None
) -> int:
    run_log, progress = training.run_log, training.run_log.progress
    try:
        resumed = resume and restore(training)
        if not resumed:
            run_log.reopen(0, 0)
        run_log.events.write(_started(training, resumed=resumed))
        _tell_initial_weights(training)
        progress.resume(training.steps_done)
        progress.say(_opening(training, resumed=resumed))
        status, test = _run_and_test(training)
        if status == "done" and check is not None:
            check.finish()
            training.group.barrier()  # no rank says that it is done where another has found damage
    finally:
        progress.close()
        if training.profile is not None:
            training.profile.close()
    if test and training.group.rank == 0 and training.plan.baselines and training.plan.profile is None:
        score_after(training)
    message = _why_early(training) if status == "done" else training.time_left.why()
    baselines = recorded_baselines(run_log.folder) if test and training.group.rank == 0 else {}
    # All that is read is read before an outcome says that the run is done: after that nothing continues it.
    seal = seal_of(run_log.folder, training.group.rank) if status == "done" else {}
    if training.group.rank == 0:
        outcome = _outcome(training, status, message, began, test, baselines)
        outcome = outcome.model_copy(update={"elastic": _who_did_what(training)})
        seal[run_log.folder.outcome_path.name] = run_log.folder.write_outcome(outcome)
    if status == "done":
        peak_mib = peak_bytes() / (1 << 20)
        finish = Finish(steps_done=training.steps_done, status=status, seal=seal, peak_rss_mib=peak_mib)
        run_log.events.write(finish)
    else:
        run_log.events.write(Stop(steps_done=training.steps_done, status=status))
    for link in links:
        link.tell(MessageType.BYE, ENDINGS[status].exit_status)
        link.hear()  # its last event is written
    with suppress(RuntimeError):  # srun kills the others as soon as one exits with 75: all must have written by then
        training.group.barrier()
    progress.say(_closing(training, test, baselines))
    return ENDINGS[status].exit_status


def _started(training: Training, *, resumed: bool) -> Start:
    return Start(
        resumed=resumed,
        steps_done=training.steps_done,
        parameters=training.learner.replica.num_parameters,
        hostname=socket.gethostname(),
        pid=os.getpid(),
        world_size=dist.get_world_size() if dist.is_initialized() else 1,
        backend=dist.get_backend() if dist.is_initialized() else None,
        plan_hash=training.checkpoints.plan_hash,
        process_s=training.time_left.reserve.start_s,
        data=training.data,
        own_code=own_code(os.environ),
    )


def _tell_initial_weights(training: Training) -> None:
    """Record and print which tensors were initialised, at the start of a run that begins with other weights."""
    initial, loaded = training.plan.init_from, training.initial
    if initial is None or loaded is None or training.steps_done:
        return
    training.run_log.events.write(
        Initialised(
            source=initial.source,
            checksum=initial.checksum,
            taken=loaded.taken,
            not_taken=loaded.not_taken,
            not_filled=loaded.not_filled,
        )
    )
    parts = [f"initial weights from {initial.source}: {counted(len(loaded.taken), 'tensor')}"]
    parts += [f"not taken: {', '.join(loaded.not_taken)}"] if loaded.not_taken else []
    parts += [f"not in it, so as a new run has them: {', '.join(loaded.not_filled)}"] if loaded.not_filled else []
    parts += [f"trained by another model: {', '.join(loaded.otherwise)}"] if loaded.otherwise else []
    training.run_log.progress.say("; ".join(parts))


def _run_and_test(training: Training) -> tuple[EndingName, Measures | None]:
    try:
        if training.run() == "done":
            return "done", training.test_best()
    except EvaluationStopped:  # all steps are saved: the next attempt only evaluates the test split
        pass
    return training.time_left.ending(), None


def _outcome(
    training: Training | None,
    status: EndingName,
    message: str,
    began: float,
    test: Measures | None = None,
    baselines: BaselineScores | None = None,
) -> Outcome:
    best = training.evaluations.best if training else None
    return Outcome(
        status=status,
        exit_code=ENDINGS[status].exit_status,
        epochs=training.epoch if training else 0,
        steps_per_rank=training.steps_done if training else 0,
        test=test.facts() if test else None,
        baselines=baselines or {},
        best=best.facts() if best else None,
        wall_s=time.perf_counter() - began,
        message=message,
        stopped_early=training is not None and training.stopped_early,
    )


def _who_did_what(training: Training) -> str:
    """Which number of ranks did which steps, in words; "": the planned number did all."""
    folder, planned = training.run_log.folder, training.plan.ranks
    if all(attempt.world is None or attempt.world.ranks == planned for attempt in folder.attempts()):
        return ""
    try:
        starts = events_in(folder.events_path(0), Start)
    except UserError as error:
        return f"not all attempts had {planned} ranks; which did what is not known: {error.message}"
    spans = spans_of((start.steps_done, start.world_size) for start in starts)
    return spans_text(spans) if {each.ranks for each in spans} - {planned} else ""


def _opening(training: Training, *, resumed: bool) -> str:
    plan = training.plan
    synthetic = " (synthetic)" if plan.dataset.synthetic else ""
    num_ranks = training.group.world_size
    ranks, threads = counted(num_ranks, "rank"), counted(plan.threads, "thread")
    planned = "" if num_ranks == plan.ranks else f" ({plan.ranks} were planned)"
    return ", ".join(
        [
            f"{plan.run_id}: {plan.dataset.name}{synthetic}",
            f"{training.learner.replica.num_parameters:,} parameters",
            f"{ranks} on {plan.device}{planned}",
            *([f"batches by {counted(plan.roles.samplers, 'sampler')}"] if plan.roles is not None else []),
            f"{threads} each",
            f"{plan.sync.scheme}, every {plan.sync.every}" if num_ranks > 1 else "no synchronisation",
            *([f"data in {training.data}"] if training.data != plan.dataset.path else []),
            *([f"resumed after step {training.steps_done}"] if resumed else []),
        ]
    )


def _why_early(training: Training) -> str:
    """Why the run ended before the planned end; "" if it did not."""
    best, stale = training.evaluations.best, training.evaluations.patience.num_stale
    if not training.stopped_early or best is None:
        return ""
    measure, min_delta = training.plan.kind.measures[0], training.plan.early_stopping.min_delta
    least = f" by more than {min_delta:g}" if min_delta else ""
    first_stale = training.epoch - stale * max(1, training.plan.evaluate_every_epochs)
    is_tie = best.epoch > first_stale and not min_delta
    of_equals = ", of equal scores the one with the lowest loss" if is_tie else ""
    return (
        f"stopped early after epoch {training.epoch} of {training.calendar.num_epochs}: {measure.words} on the"
        f" validation split did not improve{least} in {counted(stale, 'evaluation')};"
        f" best epoch {best.epoch}{of_equals}"
    )


def _closing(training: Training, test: Measures | None, baselines: BaselineScores) -> str:
    profile = training.plan.profile
    if profile is not None and profile.ends_run:
        return training.time_left.why()  # its folder is not kept
    if test is None or training.evaluations.best is None:
        return f"stopped after step {training.steps_done} of {training.calendar.last_step}; a checkpoint is there"
    kind = training.plan.kind
    lines = [*filter(None, [_why_early(training)])]
    lines.append(f"test {_scores(kind, test.values)}  (best checkpoint: epoch {training.evaluations.best.epoch})")
    rows = read_evaluations(training.run_log.folder, is_growing=True)
    lines += filter(None, [not_better_than_it_began(rows, kind, training.evaluations.best.facts())])
    beside = baselines.get("test", {})
    lines += [
        f"{each.words}: {_scores(kind, beside[each.name])}" for each in kind.baselines.methods if each.name in beside
    ]
    if lost := lost_to(kind, test.values, beside):
        lines.append(f"the run {lost}")
    return "\n".join(lines)


def _scores(kind: AnyKind, values: Mapping[str, float]) -> str:
    known = [measure for measure in kind.measures if measure.is_shown and measure.name in values]
    return "  ".join(f"{measure.words} {values[measure.name]:.4f}" for measure in known[:_MOST_SCORES])


if __name__ == "__main__":
    leave(main())
