"""Who am I: the rank of this process, from the variables that torchrun, our own launcher and Slurm's srun set."""

from collections.abc import Mapping
from dataclasses import dataclass

from graphmill.base.errors import UserError
from graphmill.runtime.job_environment import OF_RANK, JobEnvironment

VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
LAUNCHER = "GRAPHMILL_LAUNCHER"  # our scripts set it to srun: then Slurm's variables hold the rank


@dataclass(frozen=True, slots=True)
class Rank:
    """One process among `world_size`; `local_rank` counts within its host."""

    rank: int
    local_rank: int
    world_size: int
    local_world_size: int
    num_hosts: int


ALONE = Rank(rank=0, local_rank=0, world_size=1, local_world_size=1, num_hosts=1)


def current_rank(environ: Mapping[str, str]) -> Rank:
    """The rank that `environ` describes: without a variable of a launcher, that of a task of srun; else a single rank.

    Slurm's variables are those of the process that srun started, not of the batch script, where they say 0 everywhere.
    """
    missing = [name for name in VARIABLES if not environ.get(name)]
    if environ.get(LAUNCHER) == "srun" or (len(missing) == len(VARIABLES) and JobEnvironment(environ).num_tasks > 1):
        return _rank_of_srun(environ)
    if len(missing) == len(VARIABLES):
        return ALONE
    if missing:
        given = [name for name in VARIABLES if name not in missing]
        raise UserError(
            f"{' and '.join(given)} {'is' if len(given) == 1 else 'are'} set, but {', '.join(missing)}"
            f" {'is' if len(missing) == 1 else 'are'} not, so this process cannot know its rank",
            fix=f"start with `graphmill train` or torchrun, which set all four, or `unset {' '.join(given)}`",
        )
    rank, local_rank, world_size, local_world_size = (_count(environ, name) for name in VARIABLES)
    return _checked(rank, local_rank, world_size, local_world_size)


def refuse_several_tasks(environ: Mapping[str, str]) -> None:
    """Raise a `UserError` if srun has started this program several times: each would train the run by itself."""
    number = JobEnvironment(environ).num_tasks
    if number > 1 and not environ.get("RANK"):
        raise UserError(
            f"srun has started this {number} times, and each would train a run of its own",
            fix=f"`srun --ntasks={number} python -m graphmill.train EXPERIMENT` trains one run with {number} ranks;"
            " `graphmill submit` does all of it; or start this once: srun --ntasks=1",
        )


def _rank_of_srun(environ: Mapping[str, str]) -> Rank:
    missing = [name for name in OF_RANK if not environ.get(name)]
    if missing:
        raise UserError(
            f"srun started this, but {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set",
            fix=f"start the ranks with srun, or `unset {LAUNCHER}`",
        )
    rank, local_rank, world_size, num_hosts = (_count(environ, name) for name in OF_RANK)
    shares = JobEnvironment(environ).tasks_per_host
    if not num_hosts or world_size % num_hosts or "," in shares:
        each = f" ({shares})" if "," in shares else ""
        raise UserError(
            f"srun started {world_size} ranks on {num_hosts} hosts{each}, and every host must start as many",
            fix="start a multiple of the hosts, with --ntasks-per-node",
        )
    each_host = world_size // num_hosts
    if rank % each_host != local_rank:
        raise UserError(
            f"srun made task {rank} of {world_size} number {local_rank} of its host: ranks are numbered host by host",
            fix="srun --distribution=block",
        )
    return _checked(rank, local_rank, world_size, each_host)


def _checked(rank: int, local_rank: int, world_size: int, local_world_size: int) -> Rank:
    if not (rank < world_size and local_rank < local_world_size <= world_size):
        raise UserError(
            f"RANK={rank} of WORLD_SIZE={world_size} with LOCAL_RANK={local_rank} of"
            f" LOCAL_WORLD_SIZE={local_world_size} cannot be: ranks count from 0 and stay below their world size",
            fix="start with `graphmill train` or torchrun, which set them together",
        )
    if world_size % local_world_size:
        raise UserError(
            f"WORLD_SIZE={world_size} is not a multiple of LOCAL_WORLD_SIZE={local_world_size},"
            " and every host must start the same number of ranks",
            fix="start the same number of ranks on every host",
        )
    return Rank(rank, local_rank, world_size, local_world_size, num_hosts=world_size // local_world_size)


def _count(environ: Mapping[str, str], name: str) -> int:
    text = environ[name].strip()
    if not (text.isascii() and text.isdecimal()):
        raise UserError(
            f"{name}={environ[name]!r} is not a count",
            fix=f"`unset {' '.join(VARIABLES)}`, or start with torchrun",
        )
    return int(text)
