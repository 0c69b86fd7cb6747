"""Who am I: the rank of this process, from the variables that torchrun and our own launcher set."""

from collections.abc import Mapping
from dataclasses import dataclass

from graphmill.base.errors import UserError

VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
LAUNCHER = "GRAPHMILL_LAUNCHER"  # our scripts set it to srun: then Slurm's variables hold the rank
_OF_SRUN = ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_NODES")


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
    """The rank that `environ` describes; a single rank if none of the variables is set.

    Slurm's variables are those of the process that srun started, not of the batch script, where they say 0 everywhere.
    """
    if environ.get(LAUNCHER) == "srun":
        return _rank_of_srun(environ)
    missing = [name for name in VARIABLES if not environ.get(name)]
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


def _rank_of_srun(environ: Mapping[str, str]) -> Rank:
    missing = [name for name in _OF_SRUN if not environ.get(name)]
    if missing:
        raise UserError(
            f"{LAUNCHER} is srun, but {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set",
            fix=f"start the ranks with srun, or `unset {LAUNCHER}`",
        )
    rank, local_rank, world_size, num_hosts = (_count(environ, name) for name in _OF_SRUN)
    if not num_hosts or world_size % num_hosts:
        raise UserError(
            f"srun started {world_size} ranks on {num_hosts} hosts, and every host must start as many",
            fix="start a multiple of the hosts, with --ntasks-per-node",
        )
    return _checked(rank, local_rank, world_size, world_size // num_hosts)


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
