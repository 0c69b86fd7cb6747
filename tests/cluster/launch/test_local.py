"""The launcher, with real processes: they start together, stop together and die together."""

import os
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from slow_cases import with_slow
from waiting import HANG_S, is_alive, wait_until

from graphmill.base.errors import UserError
from graphmill.cluster.launch.local import WORKER, imports_of, run_ranks, shared_environment
from graphmill.record.run_folder import plan_text
from graphmill.spec.experiment import CustomModelSpec
from graphmill.spec.roles import RolesSpec

LAUNCH = """
import sys
from pathlib import Path
from graphmill.base.messages import show_messages
from graphmill.cluster.launch.local import WORKER, imports_of, run_ranks, shared_environment
from graphmill.record.run_folder import RunFolder
show_messages()
folder = RunFolder.open(Path(sys.argv[1]))
sys.exit(run_ranks(folder, folder.read_plan(), resume=False, program=sys.argv[2:], grace_s=1.0))
"""


def launch(folder, command, environ) -> subprocess.Popen:
    """The launcher as a process of its own, so that it can be sent signals and killed."""
    return subprocess.Popen(
        [sys.executable, "-c", LAUNCH, str(folder.path), *command], env=environ, stderr=subprocess.PIPE, text=True
    )


def wait_for(*paths: Path) -> None:
    wait_until(lambda: all(path.exists() and path.read_text() for path in paths), paths)


def pids(folder, ranks: int) -> list[int]:
    paths = [folder.path / f"started_{rank}" for rank in range(ranks)]
    wait_for(*paths)
    return [int(path.read_text().split("\n")[0]) for path in paths]


def test_all_done_is_exit_0(new_run, stand_in):
    folder, plan = new_run(3)
    assert run_ranks(folder, plan, resume=False, program=stand_in()) == 0
    assert (folder.path / "started_2").read_text().endswith("[]")


def test_resume_is_passed_on(new_run, stand_in):
    folder, plan = new_run(1)
    assert run_ranks(folder, plan, resume=True, program=stand_in()) == 0
    assert "--resume" in (folder.path / "started_0").read_text()


def test_ranks_get_torchruns_variables_and_a_port_that_rank_0_can_listen_on(new_run, stand_in):
    folder, plan = new_run(2, threads=3)
    assert run_ranks(folder, plan, resume=False, program=stand_in("0:environ", "1:environ")) == 0
    assert (folder.path / "environ_1").read_text().split() == [
        "RANK=1", "LOCAL_RANK=1", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "OMP_NUM_THREADS=3",
        "GLOO_SOCKET_IFNAME=lo",
    ]  # fmt: skip
    tokens = {(folder.path / f"token_{rank}").read_text() for rank in range(2)}
    assert [len(token) for token in tokens] == [32], "of this attempt, and the same for both"


SHARED = {"processes": 1, "address": "", "port": 1, "interface": "lo", "token": "t"}
CORES = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("environ", "ranks", "with_torch", "waits"),
    [
        ({}, 1, False, {"OMP_WAIT_POLICY": "PASSIVE"}),
        ({}, 1, True, {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "3000"}),
        ({}, 2, True, {"OMP_WAIT_POLICY": "PASSIVE"}),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, 1, True, {"OMP_WAIT_POLICY": "ACTIVE"}),
        ({"GOMP_SPINCOUNT": "7"}, 1, False, {"GOMP_SPINCOUNT": "7"}),
    ],
)
def test_threads_spin_where_torchs_small_operators_follow_each_other_and_cores_are_not_shared(
    environ, ranks, with_torch, waits
):
    asked = {**SHARED, "processes_here": ranks, "threads": CORES, "computes_with_torch": with_torch}
    found = shared_environment(environ, **asked)
    assert {name: value for name, value in found.items() if name.startswith(("OMP_W", "GOMP", "KMP"))} == waits


def test_plans_say_whether_they_compute_with_torch(make_plan):
    assert not make_plan().task.computes_with_torch
    custom = make_plan().task.model_copy(update={"model": CustomModelSpec(kind="custom", target="torch.nn.Identity")})
    assert custom.computes_with_torch


def test_output_of_rank_0_is_shown_and_all_is_logged(new_run, stand_in, capfd):
    folder, plan = new_run(2)
    run_ranks(folder, plan, resume=False, program=stand_in("0:talk", "1:talk"))
    out, err = capfd.readouterr()
    assert out == "a line for the terminal\n"
    assert err == "a warning\n"
    assert folder.log_path(0).read_text() == "a warning\n"
    assert folder.log_path(1).read_text() == "a line for the terminal\na warning\n"


def test_one_dead_rank_ends_the_others_and_its_error_is_told(new_run, stand_in, capfd):
    folder, plan = new_run(3)
    assert run_ranks(folder, plan, resume=False, program=stand_in("0:hang", "1:crash:0.2", "2:hang"), grace_s=1.0) == 1
    err = capfd.readouterr().err
    assert "error: rank 1 of 3 failed first: exit status 1" in err
    assert "  | RuntimeError: rank 1 met a bug" in err
    assert f"--resume {folder.path}" in err
    assert not any(is_alive(pid) for pid in pids(folder, 3))
    outcome = folder.read_outcome()
    assert (outcome.status, outcome.exit_code) == ("failed", 1)
    assert outcome.message == "rank 1 of 3 failed first: exit status 1"


def test_a_kill_by_the_system_is_named(new_run, stand_in, capfd):
    folder, plan = new_run(2)
    assert run_ranks(folder, plan, resume=False, program=stand_in("0:hang", "1:die"), grace_s=0.5) == 1
    assert "killed by SIGKILL, could be by the kernel because memory ran out" in capfd.readouterr().err


def test_a_run_folder_that_cannot_be_told_hides_no_first_error(new_run, stand_in, source_environ):
    folder, _ = new_run(2)
    launcher = launch(folder, stand_in("0:hang", "1:crash:1"), source_environ)
    pids(folder, 2)
    resource.prlimit(launcher.pid, resource.RLIMIT_FSIZE, (0, 0))  # the launcher's own disk is full, from now on
    _, err = launcher.communicate(timeout=HANG_S)
    assert launcher.returncode == 1
    assert err.index("error: rank 1 of 2 failed first") < err.index("error: could not write to the run folder: [Err")
    assert "Traceback" not in err.split("could not write")[1]
    assert folder.read_outcome() is None


def test_the_first_error_is_told_first_though_its_rank_dies_last(new_run, stand_in, capfd):
    folder, plan = new_run(2)
    assert run_ranks(folder, plan, resume=False, program=stand_in("0:crash:0.4", "1:slow_crash")) == 1
    err = capfd.readouterr().err
    assert "rank 1 of 2 failed first" in err
    assert "the first error" in err
    assert "Traceback" not in err, "the echo in rank 0 belongs into its log"
    assert "rank 0 met a bug" in folder.log_path(0).read_text()


def test_the_loss_of_another_rank_is_not_the_first_error(new_run, stand_in, capfd):
    folder, plan = new_run(2)
    assert run_ranks(folder, plan, resume=False, program=stand_in("0:echo", "1:die:0.5")) == 1
    err = capfd.readouterr().err
    assert "rank 1 of 2 failed first: killed by SIGKILL" in err
    assert "Traceback" not in err


def test_an_error_of_rank_0_is_shown_whole(new_run, stand_in, capfd):
    folder, plan = new_run(2)
    assert run_ranks(folder, plan, resume=False, program=stand_in("0:crash", "1:hang"), grace_s=0.3) == 1
    err = capfd.readouterr().err
    assert err.index("RuntimeError: rank 0 met a bug") < err.index("error: rank 0 of 2 failed first")


@pytest.mark.parametrize("rank", [0, 1])
def test_a_users_error_is_exit_2_without_decoration(new_run, stand_in, capfd, rank):
    folder, plan = new_run(2)
    command = stand_in(f"{rank}:refuse", f"{1 - rank}:hang")
    assert run_ranks(folder, plan, resume=False, program=command, grace_s=0.3) == 2
    assert capfd.readouterr().err == "error: the batch does not fit\n  → set train.batch_size=1\n"


def test_a_python_that_cannot_start_leaves_no_process(new_run, stand_in, monkeypatch):
    folder, plan = new_run(2)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setenv("GRAPHMILL_TEST_OWN_FORK_SERVER", "1")
    with pytest.raises(UserError, match="rank 0 could not be started: No such file"):
        run_ranks(folder, plan, resume=False, program=stand_in())
    assert not list(folder.path.glob("started_*"))


@pytest.mark.parametrize("number", with_slow([signal.SIGTERM, signal.SIGINT, signal.SIGHUP], fast=[signal.SIGHUP]))
def test_a_stop_is_passed_on_once_and_waited_for(new_run, stand_in, source_environ, number):
    folder, _ = new_run(2)
    launcher = launch(folder, stand_in("0:sleep", "1:sleep"), source_environ)
    running = pids(folder, 2)
    launcher.send_signal(number)
    assert launcher.wait(HANG_S) == 75, launcher.stderr.read()
    passed_on = signal.SIGTERM if number == signal.SIGHUP else number
    assert (folder.path / "checkpoint_1").read_text() == str(int(passed_on))
    assert not any(is_alive(pid) for pid in running)
    assert folder.read_outcome().status == "stopped"


def test_a_stop_before_the_ranks_listen_is_75_too(new_run, stand_in, source_environ):
    folder, _ = new_run(2)
    launcher = launch(folder, stand_in("0:deaf_at_first", "1:sleep"), source_environ)
    pids(folder, 2)
    launcher.terminate()
    assert launcher.wait(HANG_S) == 75, launcher.stderr.read()


def test_an_interrupt_before_the_ranks_listen_waits_for_them(new_run, stand_in, source_environ):
    folder, _ = new_run(2)
    launcher = launch(folder, stand_in("0:listen_late", "1:listen_late"), source_environ)
    pids(folder, 2)
    launcher.send_signal(signal.SIGINT)
    assert launcher.wait(HANG_S) == 75, launcher.stderr.read()
    assert (folder.path / "checkpoint_1").read_text() == str(int(signal.SIGINT))


def test_a_second_interrupt_stops_at_once(new_run, stand_in, source_environ):
    folder, _ = new_run(2)
    launcher = launch(folder, stand_in("0:hang", "1:hang"), source_environ)
    running = pids(folder, 2)
    launcher.send_signal(signal.SIGINT)
    wait_for(*(folder.path / f"asked_{rank}" for rank in (0, 1)))
    assert launcher.poll() is None, "the first one waits for the checkpoint"
    launcher.send_signal(signal.SIGINT)
    assert launcher.wait(HANG_S) == 130, launcher.stderr.read()
    assert not any(is_alive(pid) for pid in running)
    assert folder.read_outcome().status == "interrupted"


def test_ranks_die_with_a_killed_launcher(new_run, stand_in, source_environ):
    folder, _ = new_run(2)
    launcher = launch(folder, stand_in("0:hang", "1:hang"), source_environ)
    running = pids(folder, 2)
    launcher.kill()
    launcher.wait()
    wait_until(lambda: not any(is_alive(pid) for pid in running), "orphans to end")


def test_children_of_a_rank_die_too(new_run, stand_in):
    folder, plan = new_run(1)
    assert run_ranks(folder, plan, resume=False, program=stand_in("0:spawn")) == 1
    grandchild = int((folder.path / "grandchild").read_text())
    wait_until(lambda: not is_alive(grandchild), "the grandchild to end")


def test_handlers_are_given_back(new_run, stand_in):
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    folder, plan = new_run(1)
    run_ranks(folder, plan, resume=False, program=stand_in())
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


def test_it_works_outside_the_main_thread(new_run, stand_in):
    folder, plan = new_run(2)
    results = []
    thread = threading.Thread(
        target=lambda: results.append(run_ranks(folder, plan, resume=False, program=stand_in("0:done:0.3")))
    )
    thread.start()
    thread.join(HANG_S)
    assert results == [0]


def test_many_launches_at_once_do_not_share_a_port(new_run, stand_in, source_environ):
    runs = [new_run(2, run_id=f"run-{number}")[0] for number in range(4)]
    launchers = [launch(folder, stand_in("0:environ", "1:environ"), source_environ) for folder in runs]
    assert [launcher.wait(HANG_S) for launcher in launchers] == [0] * 4


def test_stale_rank_variables_are_overwritten(new_run, stand_in, monkeypatch):
    monkeypatch.setitem(os.environ, "WORLD_SIZE", "7")
    folder, plan = new_run(1)
    assert run_ranks(folder, plan, resume=False, program=stand_in()) == 0


def test_samplers_start_beside_ranks_and_have_logs_of_their_own(new_run, stand_in, capfd):
    folder, plan = new_run(2)
    plan = plan.model_copy(update={"roles": RolesSpec(samplers=1, trainers=2)})
    folder.plan_path.write_text(plan_text(plan))
    assert run_ranks(folder, plan, resume=False, program=stand_in("0:hang", "1:hang", "2:crash"), grace_s=1.0) == 1
    assert "error: sampler 0 of 1 failed first: exit status 1" in capfd.readouterr().err
    assert "met a bug" in (folder.path / "sampler_0.log").read_text()
    assert not any(is_alive(pid) for pid in pids(folder, 3))


@pytest.mark.parametrize(
    ("target", "source", "is_imported"),
    [
        ("torch_geometric.nn.models.GCN", None, True),
        ("nets.Net", "from torch_geometric.nn import GCNConv\n", True),
        ("nets:Net", "import torch_geometric.nn\n", True),
        ("nets.Net", "import torch\nraise SystemExit('it was imported')\n", False),
        ("not_there.Net", None, False),
        ("\0.Net", None, False),
    ],
)
def test_pyg_is_imported_once_for_ranks_whose_model_uses_it(
    make_plan, tmp_path, monkeypatch, target, source, is_imported
):
    """Seen from the file's text: the user's code runs in ranks, and not in what starts them."""
    monkeypatch.chdir(tmp_path)
    if source is not None:
        (tmp_path / "nets.py").write_text(source)
    plan = make_plan()
    own = plan.task.model_copy(update={"model": CustomModelSpec(kind="custom", target=target)})
    imports = imports_of(WORKER, plan.model_copy(update={"task": own}))
    assert ("torch_geometric" in imports) is is_imported
    assert "nets" not in imports
