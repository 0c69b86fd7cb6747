"""`launch`: train on several hosts, started over SSH."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphmill.api.planning import experiment_of
from graphmill.base import exits
from graphmill.base.errors import UserError
from graphmill.cli.agree import agree_to_code
from graphmill.cli.options import (
    DatasetRoot,
    ExperimentName,
    LogsRoot,
    Overrides,
    Resume,
    RunId,
    SshConfig,
    resolved_dataset_root,
)
from graphmill.cli.plan import show_plan
from graphmill.cli.show import print_line, print_table
from graphmill.cli.train import finish
from graphmill.cli.words import ShortFlagsCommand, short_flags_text, with_short_flags

if TYPE_CHECKING:
    from graphmill.cluster.launch.ssh.hosts import HostList
    from graphmill.cluster.launch.ssh.launch import HostRow
    from graphmill.record.run_folder import RunFolder
    from graphmill.spec.experiment import Experiment
    from graphmill.spec.plan import MachineInfo, Plan
    from graphmill.spec.roles import RoleRank


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(cls=ShortFlagsCommand, epilog=short_flags_text())(launch)


def launch(
    ctx: typer.Context,
    experiment: ExperimentName = None,
    *,
    hosts: Annotated[
        Path,
        typer.Option("--hosts", metavar="FILE", help="YAML list of hosts."),
    ] = Path("hosts.yaml"),
    override: Overrides = None,
    run_id: RunId = None,
    resume: Resume = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Log in, compare the hosts, show the plan, and start nothing.")
    ] = False,
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            metavar="N",
            min=1,
            max=65535,
            show_default=False,
            help="Where rank 0 listens for the others, for a firewall that opens one; else a free port.",
        ),
    ] = None,
    ssh_config: SshConfig = None,
    root: DatasetRoot = None,
    logs_root: LogsRoot = Path("logs"),
) -> None:
    """Train an experiment on several hosts over SSH.

    Your keys, your agent, your ssh config and known hosts: nothing is asked for, and an unknown host is refused.
    All hosts share the logs folder and the dataset, at the same paths. Ctrl-C stops the ranks everywhere after a
    checkpoint (exit status 75); a second one at once. Ranks do not outlive the connection.

    \b
    Example:
      graphmill launch debian-packages-sage --hosts hosts.yaml --dry-run
      graphmill launch debian-packages-sage --hosts hosts.yaml --port 29500
      graphmill launch --resume logs/debian-packages-sage-20261121T081500Z --hosts hosts.yaml

    \b
    hosts.yaml:
      defaults: {user: me, python: /shared/graphmill/.venv/bin/python, ranks: 2}
      hosts:
        - address: node1
        - {address: 10.0.0.2, port: 2222, devices: "2,3", environment: {NCCL_DEBUG: INFO}}

    Exit status: as of train; 74 if a host was lost.
    """
    from graphmill.cluster.launch.ssh.hosts import read_hosts
    from graphmill.cluster.launch.ssh.launch import Launch
    from graphmill.record.run_folder import RunFolder, default_run_id

    overrides = with_short_flags(ctx, override or [])
    listed = read_hosts(hosts)
    folder = _run_to_resume(experiment, overrides, run_id, logs_root) if resume else None
    resolved = None if resume else _experiment(experiment, overrides, listed)
    name = "" if resolved is None else run_id or default_run_id(resolved.name, logs_root)
    if resolved is not None:
        RunFolder.place_for(name, logs_root)

    def make_plan(machine: "MachineInfo") -> "Plan":
        from graphmill.cluster.launch.check_model import refuse_unfit_model
        from graphmill.estimate.batch_size import BatchSizes
        from graphmill.tasks.planning import plan_experiment, prepare_embedded

        assert resolved is not None, "a new run"
        if not dry_run:
            prepare_embedded(resolved, resolved_dataset_root(root))

        def plan_of(experiment: "Experiment") -> "Plan":
            return plan_experiment(
                experiment,
                dataset_root=resolved_dataset_root(root),
                run_id=name,
                machine=machine,
                hosts=len(listed.hosts),
            )

        plan = BatchSizes(logs_root, may_try=False).plan(resolved, plan_of)
        refuse_unfit_model(plan.model_copy(update={"device": "cpu"}))  # this machine need not be one of the hosts
        return plan

    resume_with = f"graphmill launch --hosts {shlex.quote(str(hosts))} --resume"
    code = Launch(
        hosts=listed,
        logs_root=logs_root,
        make_plan=None if resume else make_plan,
        resume=folder,
        roles=None if resolved is None else resolved.roles,
        ssh_config=ssh_config,
        port=port,
        show=_show if dry_run else None,
        resume_with=resume_with,
    ).run()
    if not dry_run:
        finish(folder or RunFolder(logs_root / name), code, resume_with=resume_with)
    elif code != exits.DONE:
        raise typer.Exit(code)


def _experiment(experiment: str | None, overrides: list[str], hosts: "HostList") -> "Experiment":
    """The experiment with the ranks that the hosts are to start."""
    from graphmill.cluster.launch.ssh.hosts import refuse_ranks

    resolved = experiment_of(experiment, overrides)
    if hosts.num_ranks is None:
        return resolved
    refuse_ranks(hosts, resolved.train.ranks, resolved.name, resolved.roles)
    return resolved.model_copy(update={"train": resolved.train.model_copy(update={"ranks": hosts.num_ranks})})


def _run_to_resume(experiment: str | None, overrides: list[str], run_id: str | None, logs_root: Path) -> "RunFolder":
    from graphmill.record.find_run import run_to_resume

    folder, is_named = run_to_resume(experiment, run_id, logs_root, changes=bool(overrides), verb="launch")
    if not is_named and (overrides or experiment is not None):
        raise UserError(
            f"{folder.path} is resumed as it was planned: it takes neither an experiment nor overrides",
            fix="graphmill launch --resume RUN --hosts FILE",
        )
    agree_to_code(folder)
    return folder


def _show(plan: "Plan", rows: Sequence["HostRow"]) -> None:
    show_plan(plan, json=False)
    print_line("")
    print_table(
        ("host", "ranks", "cores", "GPUs", "interface", "python"),
        [
            (row.name, _processes(row.role_ranks), row.num_cores, row.num_gpus, row.interface, row.python)
            for row in rows
        ],
        title="hosts",
    )


def _processes(role_ranks: Sequence["RoleRank"]) -> str:
    """Numbers of ranks; those of samplers are said to be theirs."""
    ranks = [role_rank.rank for role_rank in role_ranks if role_rank.role == "trainer"]
    samplers = [role_rank.rank for role_rank in role_ranks if role_rank.role == "sampler"]
    said = [_numbers(ranks)] if ranks else []
    return ", ".join([*said, *([f"sampler {_numbers(samplers)}"] if samplers else [])])


def _numbers(known: Sequence[int]) -> str:
    return str(known[0]) if len(known) == 1 else f"{known[0]} to {known[-1]}"
