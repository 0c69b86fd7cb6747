"""`train.threads: trial`: how many threads pay is measured, by the first steps of runs with fewer and fewer."""

import logging
from pathlib import Path
from typing import Final

from graphmill.base.errors import UserError
from graphmill.cluster.launch.trial import measure
from graphmill.estimate.cache import Estimates
from graphmill.estimate.trial import FEWEST_STEPS, Trial, keep_trial, known_trial
from graphmill.spec.plan import Plan

_log = logging.getLogger(__name__)

_STEPS: Final = 20  # of each trial; more where they take less than a second or two
_AS_FAST: Final = 1.05  # times the shortest: what two trials of the same differ by


def fewest_threads(plan: Plan, logs_root: Path, *, may_try: bool) -> Plan:
    """The plan with the fewest threads whose whole run takes hardly longer than with any other number that was tried.

    Tried are the threads of `plan`, half of them, and so on, until half as many take longer. Trials are kept in the
    logs root, so that the same is measured once on a host. Other numbers of threads end sums in other bits: the number
    stands in the plan of the run, which a resumed run keeps.

    Args:
        plan: for one host; its `threads` are the most.
        logs_root: where trials are kept.
        may_try: whether steps may be made; else those of earlier trials count.

    Raises:
        UserError: nothing was tried and nothing may be, or the run has too few steps.
    """
    if plan.threads == 1:
        return plan
    needed = FEWEST_STEPS * plan.sync.every
    if plan.last_step < needed:
        raise UserError(
            f"train.threads is trial, which takes {needed} steps, and the run has {plan.last_step}",
            fix="give a number, such as train.threads=1, or auto",
        )
    estimates, hours, threads = Estimates(logs_root), dict[int, float](), plan.threads
    while threads and (not hours or hours[min(hours)] <= _AS_FAST * min(hours.values())):
        tried = plan.model_copy(update={"threads": threads, "baselines": False})
        trial = _trial(estimates, tried, may_try=may_try)
        hours[threads] = trial.total_h
        _log.info(f"train.threads={threads}: {1000 * trial.step_s:.2f} ms a step, {3600 * trial.total_h:.1f} s in all")
        threads //= 2
    fewest = min(number for number, each in hours.items() if each <= _AS_FAST * min(hours.values()))
    _log.info(f"train.threads: {fewest} of {plan.threads}")
    return plan.model_copy(update={"threads": fewest})


def _trial(estimates: Estimates, plan: Plan, *, may_try: bool) -> Trial:
    known = known_trial(estimates, plan)
    if known is not None:
        return known
    if not may_try:
        raise UserError(
            "train.threads is trial, and no steps are tried here",
            fix="`graphmill plan EXPERIMENT --trial 10 -O train.threads=trial` tries them; or give a number, or auto",
        )
    trial = measure(plan, max(_STEPS, FEWEST_STEPS * plan.sync.every))
    keep_trial(estimates, plan, trial)
    return trial
