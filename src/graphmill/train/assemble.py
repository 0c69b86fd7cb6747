"""Assemble the context of a rank and everything that it trains with."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from graphmill.base.errors import UserError
from graphmill.monitor.summary import MonitorFolder
from graphmill.nn.weights import Loaded, Weights
from graphmill.partition.placement import share_of_plan
from graphmill.record.events import EventWriter
from graphmill.record.run_folder import RunFolder
from graphmill.record.staged import staged_store_path
from graphmill.runtime.deadline import Reserve
from graphmill.runtime.rank import Rank
from graphmill.runtime.stop import StopRequest
from graphmill.sample.service.link import Link
from graphmill.sample.service.served import SamplerClient
from graphmill.slurm.job import job_deadline
from graphmill.spec.differences import other_computation
from graphmill.spec.plan import Plan
from graphmill.spec.roles import RoleRank
from graphmill.spec.weights import InitialWeights
from graphmill.spec.world import World
from graphmill.sync.group import Group
from graphmill.tasks.baselines import score_at_start
from graphmill.tasks.build import build_task
from graphmill.tasks.task import AnyTask, UsesSources
from graphmill.train.checkpoint import CheckpointStore
from graphmill.train.epoch_stats import EpochStats
from graphmill.train.learner import Learner
from graphmill.train.loop import Training
from graphmill.train.profile import StepProfile
from graphmill.train.run_log import Progress, RunLog
from graphmill.train.time_left import TimeLeft
from graphmill.train.words import Words


@dataclass(frozen=True, slots=True)
class RankContext:
    """What a process of a run is, before it trains or samples."""

    folder: RunFolder
    plan: Plan
    world: World
    process: Rank  # among all processes
    stop: StopRequest
    events: EventWriter
    words: Words | None  # where the ranks have met; None: they have not yet
    start_s: float  # from the start of this process until it began to work

    @property
    def role_rank(self) -> RoleRank:
        """Role of the process, and its rank among those of that role."""
        return self.world.role_rank(self.process.rank)

    @property
    def writes_records(self) -> bool:
        """Whether it is rank 0 of those that train."""
        return self.role_rank.role == "trainer" and self.role_rank.rank == 0


def plan_over_data(context: RankContext) -> tuple[Plan, str]:
    """The plan over what this host reads, and the folder of that: the prepared data, or a staged copy."""
    plan, world = context.plan, context.world
    share = share_of_plan(plan, context.process.rank // world.processes_per_host, world)
    staged = staged_store_path(plan, os.environ, context.folder, share)
    path = str(staged or plan.dataset.path)
    return plan if staged is None else plan.reading_from(path), path


def build(context: RankContext, device: torch.device, alive: Callable[[], None], link: Link | None = None) -> Training:
    """Everything one rank trains with, on `device`; `alive` is called at each step. `link`: to its sampler."""
    folder, plan, role_rank = context.folder, context.plan, context.role_rank
    group = Group(role_rank.rank, role_rank.num_ranks, device, num_hosts=role_rank.num_hosts)
    over_data, data = plan_over_data(context)
    task = build_task(over_data, group, None if link is None else _served(context, link, group))
    initial = _initial_weights(folder, plan, task.model)
    _hand_over_sources(folder, plan, task)
    _refuse_other_cut(plan, task, group)
    learner = Learner.build(plan, task.model, group)
    stats = EpochStats(
        plan=plan,
        group=group,
        num_parameters=learner.replica.num_parameters,
        interface=_interface(plan, role_rank),
        attempt=max(1, len(folder.attempts())),
        num_hosts=role_rank.num_hosts,
        utilisation=MonitorFolder(folder.monitor_dir).summarise if role_rank.rank == 0 else None,
    )
    profile = None
    if plan.profile is not None:
        profile = StepProfile(plan.profile, plan, group, folder, context.stop, stats.paused, alive)
        profile.begin()
    progress = Progress(plan, shown=role_rank.rank == 0, world_size=role_rank.num_ranks)
    return Training(
        plan=plan,
        group=group,
        task=task,
        learner=learner,
        checkpoints=CheckpointStore(folder.checkpoints_dir, folder.plan_hash(), group),
        stats=stats,
        run_log=RunLog(folder, role_rank.rank, context.events, progress, plan.kind),
        time_left=_time_left(context),
        alive=alive,
        profile=profile,
        data=data,
        baselines=() if plan.profile is not None and plan.profile.ends_run else score_at_start(plan.task),
        initial=initial,
    )


def _served(context: RankContext, link: Link, group: Group) -> SamplerClient:
    roles, rank = context.world.roles, context.role_rank.rank
    assert roles is not None, "a run without roles has no sampler"
    speaks = roles.trainers_of(roles.sampler_of(rank))[0] == rank
    return SamplerClient(link, context.plan.prefetch, speaks, group.spans, context.stop.ask)


def _refuse_other_cut(plan: Plan, task: AnyTask, group: Group) -> None:
    """Raise a `UserError` if a task cuts its batches for other ranks than there are: seeds would be lost."""
    if group.world_size == plan.ranks or len(task.schedule.counts(0, 0)) == group.world_size:
        return
    raise UserError(
        f"the task {plan.task.kind} cuts its batches for the {plan.ranks} ranks of the plan, not for the"
        f" {group.world_size} that there are",
        fix=f"let its schedule be `SeedSchedule.equal(…).among(group.world_size)`, or resume with {plan.ranks} ranks",
    )


def _initial_weights(folder: RunFolder, plan: Plan, model: nn.Module) -> Loaded | None:
    """Load the plan's initial weights into the model, before a scheme copies it. None: its random ones stay."""
    if plan.init_from is None:
        return None
    initial = plan.init_from
    weights = _copied(folder.initial_weights_path, initial)
    name = f"the model of {plan.run_id}"
    loaded = weights.load_into(model, include=initial.include, exclude=initial.exclude, name=name)
    otherwise = other_computation({} if weights.origin is None else weights.origin.model, plan)
    if otherwise and not (initial.include or loaded.not_taken or loaded.not_filled):
        raise UserError(
            f"{weights.described} has the tensors of {name}, which computes otherwise with them:"
            f" {'; '.join(otherwise)}",
            fix='ask for what the run that trained the weights has; or, if that is meant, init_from.include=["*"]',
        )
    return replace(loaded, otherwise=tuple(otherwise))


def _copied(path: Path, initial: InitialWeights) -> Weights:
    """The run's own copy of weights; `UserError` if they are not those of the plan."""
    copied = Weights.read(path)
    weights = replace(copied, described=f"{copied.described}, a copy from {initial.source}")
    found = weights.checksum()
    if found != initial.checksum:
        raise UserError(
            f"{path}: its weights have checksum {found}, plan.json says {initial.checksum}",
            fix=f"copy {initial.path} there again, or start a new run",
        )
    return weights


def _hand_over_sources(folder: RunFolder, plan: Plan, task: AnyTask) -> None:
    if not plan.sources:
        return
    found = {name: _copied(folder.source_path(name), initial) for name, initial in plan.sources.items()}
    whole: object = task
    if not isinstance(whole, UsesSources):
        raise UserError(
            f"{plan.task.kind} names sources, but its task has no method use_sources", fix="see docs/howto/own-task.md"
        )
    whole.use_sources(
        {name: found[name].chosen(initial.include, initial.exclude) for name, initial in plan.sources.items()}
    )


def _time_left(context: RankContext) -> TimeLeft:
    if context.role_rank.rank:
        return TimeLeft(context.stop)
    return TimeLeft(
        context.stop,
        job_deadline(os.environ),
        ask_again=lambda within_s: job_deadline(os.environ, moved=True, within_s=within_s),
        reserve=Reserve(start_s=context.start_s),
    )


def _interface(plan: Plan, role_rank: RoleRank) -> str | None:
    """The network interface whose traffic is counted."""
    if role_rank.num_ranks == 1 or plan.backend != "gloo":
        return None
    return os.environ.get("GLOO_SOCKET_IFNAME") or ("lo" if role_rank.num_hosts == 1 else None)
