"""`devcluster run|up|install|down|status|node|crash|boot|cut|heal`: a real Slurm on this machine."""

import os
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from graphmill.base import exits
from graphmill.base.python import python_m
from graphmill.cli.options import Json, takes_groups
from graphmill.cli.show import print_json, print_line, print_table
from graphmill.cli.tree import Commands

if TYPE_CHECKING:
    from graphmill_devcluster.description import Description, Host

_FOR_COMMANDS = {"allow_interspersed_args": False}  # what follows the first word is the command's


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(cls=Commands, no_args_is_help=True, rich_markup_mode=None)
    group.command("run", context_settings=_FOR_COMMANDS)(takes_groups(run))
    group.command("up")(takes_groups(up))
    group.command("install")(install)
    group.command("down")(down)
    group.command("status")(status)
    group.command("node", context_settings=_FOR_COMMANDS)(node)
    group.command("crash")(crash)
    group.command("boot")(boot)
    group.command("cut")(cut)
    group.command("heal")(heal)
    group.callback()(devcluster)
    app.add_typer(group, name="devcluster")


class OutOfMemory(StrEnum):
    """What becomes of a job that takes more memory than it asked for."""

    IGNORED = "ignored"
    POLLED = "polled"
    CGROUP = "cgroup"


class PreemptMode(StrEnum):
    """What becomes of a job whose place another one wants."""

    REQUEUE = "requeue"
    CANCEL = "cancel"
    SUSPEND = "suspend"


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """What the cluster is like, of `run` and of `up`."""

    hosts: Annotated[int, typer.Option("--hosts", min=1, max=99, help="Number of hosts.")] = 4
    cpus: Annotated[int, typer.Option("--cpus", min=1, help="Cores that Slurm believes each host has.")] = 2
    memory_mib: Annotated[
        int, typer.Option("--memory-mib", min=64, help="Memory that Slurm believes each host has.")
    ] = 4000
    gpus: Annotated[
        int, typer.Option("--gpus", min=0, max=8, help="Fake GPUs on each host; nothing computes on them.")
    ] = 2
    gpu_type: Annotated[str, typer.Option("--gpu-type", help="The type of the fake GPUs; '' for none.")] = "v100"
    accounting: Annotated[
        bool, typer.Option("--accounting/--no-accounting", help="slurmdbd and MariaDB, for sacct.")
    ] = True
    ssh: Annotated[bool, typer.Option("--ssh/--no-ssh", help="A login on each host.")] = True
    private: Annotated[
        list[Path] | None,
        typer.Option("--private", metavar="FOLDER", help="A folder that is private to each host, besides /run/local."),
    ] = None
    private_mib: Annotated[int, typer.Option("--private-mib", min=1, help="Size of each private folder.")] = 1024
    out_of_memory: Annotated[
        OutOfMemory,
        typer.Option("--out-of-memory", help="A job above its memory: left alone, killed by Slurm, or by the kernel."),
    ] = OutOfMemory.IGNORED
    requeue_delay_s: Annotated[int, typer.Option("--requeue-delay-s", min=5, help="How long a requeued job waits.")] = 5
    slurmd_timeout_s: Annotated[
        int, typer.Option("--slurmd-timeout-s", min=5, help="A host that does not answer for so long is down.")
    ] = 20
    min_job_age_s: Annotated[
        int, typer.Option("--min-job-age-s", min=2, help="squeue forgets ended jobs after this.")
    ] = 300
    preempt_mode: Annotated[
        PreemptMode,
        typer.Option("--preempt-mode", help="What becomes of jobs in `preempt` when one in `normal` wants in."),
    ] = PreemptMode.REQUEUE
    preempt_grace_s: Annotated[
        int,
        typer.Option(
            "--preempt-grace-s", min=0, help="GraceTime: from SIGTERM to the ranks until they are taken away."
        ),
    ] = 0
    enforce: Annotated[
        list[str] | None,
        typer.Option(
            "--enforce", metavar="WHAT", help="AccountingStorageEnforce: associations, limits, qos. Repeatable."
        ),
    ] = None
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="LINE", help="A line at the end of slurm.conf, where it wins. Repeatable."),
    ] = None
    release: Annotated[
        str | None,
        typer.Option(
            "--release", metavar="SUITE", help="Slurm of this Debian suite, unpacked by `devcluster install`."
        ),
    ] = None

    def description(self) -> "Description":
        """Return the cluster as it is built."""
        from graphmill_devcluster.description import Description
        from graphmill_devcluster.releases import installed

        return Description(
            num_hosts=self.hosts, cpus=self.cpus, memory_mib=self.memory_mib, gpus=self.gpus, gpu_type=self.gpu_type,
            accounting=self.accounting, ssh=self.ssh, private=tuple(self.private or ()), private_mib=self.private_mib,
            out_of_memory=self.out_of_memory.value, requeue_delay_s=self.requeue_delay_s,
            slurmd_timeout_s=self.slurmd_timeout_s, min_job_age_s=self.min_job_age_s,
            preempt_mode=self.preempt_mode.value, preempt_grace_s=self.preempt_grace_s,
            enforce=tuple(self.enforce or ()), settings=tuple(self.settings or ()),
            slurm_root=None if self.release is None else installed(self.release),
        )  # fmt: skip


HostName = Annotated[str, typer.Argument(metavar="HOST", help="host1, host2, …")]


def devcluster() -> None:
    """A real Slurm on this machine, to try scripts on.

    munge, slurmctld, slurmdbd with MariaDB, and hosts with their own network, names, processes and private folders.
    Nothing of this machine is changed, and nothing is left behind.

    \b
    Example:
      graphmill devcluster run -- srun -N4 hostname
    """


def run(
    command: Annotated[list[str], typer.Argument(metavar="COMMAND…", help="What to run on the cluster's head.")],
    *,
    cluster: ClusterOptions,
    keep_logs: Annotated[
        Path | None, typer.Option("--keep-logs", metavar="FOLDER", help="Copy the daemons' logs there at the end.")
    ] = None,
) -> None:
    """Run one command in a cluster that lives as long as the command.

    The exit status is the command's. Several at once do not see each other. Files are this machine's, the network is
    the cluster's own: there is no way out of it.

    \b
    Example:
      graphmill devcluster run --hosts 2 -- srun -N2 hostname
    """
    from graphmill_devcluster.launch import run as run_

    raise typer.Exit(run_(cluster.description(), command, keep_logs=keep_logs))


def up(cluster: ClusterOptions) -> None:
    """Bring a cluster up that stays until `graphmill devcluster down`.

    Its head is entered with `graphmill devcluster node head`. When it is up already, nothing happens.

    \b
    Example:
      graphmill devcluster up --hosts 2
      graphmill devcluster node head -- sinfo
    """
    from graphmill_devcluster import launch

    _, new = launch.up(cluster.description())
    is_up = f"{cluster.hosts} hosts are up{'' if new else ' already'}"
    print_line(f"{is_up}; a shell on the head: graphmill devcluster node head")


def install(
    suite: Annotated[
        str, typer.Argument(metavar="SUITE", help="A suite of Debian, newer than this machine's: trixie.")
    ],
    mirror: Annotated[
        str | None, typer.Option("--mirror", metavar="URL", show_default=False, help="Of Debian; else that of apt.")
    ] = None,
) -> None:
    """Unpack the Slurm of another Debian suite, for `devcluster run --release SUITE`.

    Its packages are fetched with apt and unpacked with their libraries into a folder of the user's cache
    ($XDG_CACHE_HOME/graphmill/slurm). Nothing is installed, and no root is needed.

    \b
    Example:
      graphmill devcluster install trixie
      graphmill devcluster run --release trixie -- sinfo --version
    """
    from graphmill_devcluster.releases import install as install_
    from graphmill_devcluster.releases import version_of

    root = install_(suite, mirror)
    print_line(f"{version_of(root)} is in {root}")


def down() -> None:
    """End the cluster that `up` brought up, and all its jobs.

    \b
    Example:
      graphmill devcluster down
    """
    from graphmill_devcluster import launch

    print_line("the dev cluster is down" if launch.down() else "no dev cluster was up")


def status(json: Json = False) -> None:
    """Show daemons and hosts. Exit status 1 if one that should run does not.

    \b
    Example:
      graphmill devcluster status
    """
    _be_inside()
    from graphmill_devcluster.status import status as status_

    seen = status_()
    if json:
        print_json({"ok": seen.healthy, **{"daemons": seen.daemons, "hosts": seen.hosts}})
    else:
        print_table(("daemon", "process"), [[name, str(number or "ended")] for name, number in seen.daemons.items()])
        rows = [[h.name, h.address, _on(h.power), _on(h.cable), h.slurm_state] for h in seen.hosts]
        print_table(("host", "address", "power", "cable", "Slurm says"), rows)
    if not seen.healthy:
        raise typer.Exit(exits.ANSWER_IS_NO)


def node(
    name: Annotated[str, typer.Argument(metavar="HOST", help="head, host1, host2, …")],
    command: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND…", show_default=False, help="A shell if left out.")
    ] = None,
) -> None:
    """Run a command on a host of the cluster, or on its head.

    \b
    Example:
      graphmill devcluster node head -- sbatch job.sbatch
      graphmill devcluster node host2
    """
    from graphmill_devcluster.description import HEAD
    from graphmill_devcluster.hosts import enter

    _be_inside()
    words = (command or [])[(command or [])[:1] == ["--"] :] or [os.environ.get("SHELL", "/bin/sh")]
    if name != HEAD:
        words = enter(_there(name)[1], words)
    _become(words)


def crash(name: HostName) -> None:
    """Power a host off: its network goes down, then all its processes are killed.

    \b
    Example:
      graphmill devcluster crash host2
    """
    from graphmill_devcluster.hosts import crash as crash_

    crash_(_there(name)[1])


def boot(name: HostName) -> None:
    """Power a host on, and start its daemons.

    \b
    Example:
      graphmill devcluster boot host2
    """
    from graphmill_devcluster.build import boot as boot_

    boot_(*_there(name))


def cut(name: HostName) -> None:
    """Unplug the network cable of a host.

    \b
    Example:
      graphmill devcluster cut host2
    """
    from graphmill_devcluster.hosts import cut as cut_

    cut_(_there(name)[1])


def heal(name: HostName) -> None:
    """Plug the network cable of a host in again.

    \b
    Example:
      graphmill devcluster heal host2
    """
    from graphmill_devcluster.hosts import heal as heal_

    heal_(_there(name)[1])


def _there(name: str) -> "tuple[Description, Host]":
    """The cluster that this process is in, which it enters first, and its host of that name."""
    from graphmill_devcluster.description import Description

    _be_inside()
    cluster = Description.of_this_cluster()
    return cluster, cluster.host(name)


def _be_inside() -> None:
    """Continue inside the cluster that `up` brought up, unless this is inside one: the same command, started there."""
    from graphmill_devcluster.hosts import inside
    from graphmill_devcluster.launch import the_running_one

    if not inside():
        _become(the_running_one().enter(python_m("graphmill.cli", *sys.argv[1:])))


def _become(words: list[str]) -> NoReturn:
    from graphmill.base.errors import UserError
    from graphmill_devcluster.description import environment

    sys.stdout.flush()
    try:
        os.execvpe(words[0], words, environment(dict(os.environ)))  # a program and its words, no shell
    except OSError as error:
        raise UserError(f"{words[0]} cannot be started: {error.strerror}", fix="look for it with `type`") from None


def _on(claim: bool) -> str:
    return "on" if claim else "off"
