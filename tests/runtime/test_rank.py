import pytest

from graphmill.base.errors import UserError
from graphmill.runtime.rank import ALONE, Rank, current_rank, refuse_several_tasks


def environ(rank="1", local_rank="1", world_size="4", local_world_size="2") -> dict[str, str]:
    return {"RANK": rank, "LOCAL_RANK": local_rank, "WORLD_SIZE": world_size, "LOCAL_WORLD_SIZE": local_world_size}


def test_no_variable_means_alone():
    assert current_rank({"PATH": "/bin"}) == ALONE
    assert current_rank({"RANK": "", "WORLD_SIZE": ""}) == ALONE


def test_torchruns_variables():
    assert current_rank(environ()) == Rank(rank=1, local_rank=1, world_size=4, local_world_size=2, num_hosts=2)


@pytest.mark.parametrize("name", ["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"])
def test_half_set_names_what_is_missing(name):
    given = environ()
    del given[name]
    with pytest.raises(UserError, match=rf"{name} is not"):
        current_rank(given)


@pytest.mark.parametrize(
    "given",
    [
        environ(rank="4"),
        environ(local_rank="2"),
        environ(local_world_size="8"),
        environ(world_size="0"),
        environ(rank="-1"),
        environ(rank="one"),
        environ(rank="1.0"),
        environ(rank="²"),
        environ(world_size="5"),
    ],
)
def test_nonsense_is_refused(given):
    with pytest.raises(UserError):
        current_rank(given)


SRUN = {
    "GRAPHMILL_LAUNCHER": "srun",
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_STEP_NUM_NODES": "2",
}


def test_slurm_tells_the_rank_of_what_srun_started():
    assert current_rank(SRUN) == Rank(rank=5, local_rank=1, world_size=8, local_world_size=4, num_hosts=2)


def test_the_batch_script_has_no_rank():
    batch = {"GRAPHMILL_LAUNCHER": "srun", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
    with pytest.raises(UserError, match="SLURM_STEP_NUM_TASKS, SLURM_STEP_NUM_NODES are not set"):
        current_rank(batch)


def test_tasks_of_a_users_own_srun_are_ranks():
    own = {name: value for name, value in SRUN.items() if name != "GRAPHMILL_LAUNCHER"}
    assert current_rank(own) == current_rank(SRUN)
    assert current_rank(own | {"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}) == ALONE
    torchruns = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
    assert current_rank(own | torchruns).world_size == 1, "srun has started its agents"
    with pytest.raises(UserError, match="started this 8 times") as error:
        refuse_several_tasks(own)
    assert "python -m graphmill.train" in error.value.fix
    refuse_several_tasks(own | torchruns)
    refuse_several_tasks(own | {"SLURM_STEP_NUM_TASKS": "1"})


def test_ranks_that_are_not_numbered_host_by_host_are_refused():
    with pytest.raises(UserError, match="task 5 of 8 number 2") as error:
        current_rank(SRUN | {"SLURM_LOCALID": "2"})
    assert "--distribution=block" in error.value.fix


def test_unequal_hosts_are_refused():
    with pytest.raises(UserError, match=r"4 ranks on 2 hosts \(3,1\)"):
        current_rank(SRUN | {"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "0", "SLURM_STEP_TASKS_PER_NODE": "3,1"})
    with pytest.raises(UserError, match="8 ranks on 3 hosts"):
        current_rank(SRUN | {"SLURM_STEP_NUM_NODES": "3"})
