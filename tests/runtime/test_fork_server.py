"""The fork server, with real processes."""

import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from waiting import HANG_S, is_alive, wait_until

from graphmill.runtime.fork_server import ForkedProcess, ForkServer
from graphmill.runtime.secret import TOKEN
from graphmill.spec.kinds import all_kinds

SLOW = "import time\nfrom pathlib import Path\nPath('importing').touch()\ntime.sleep(600)\n"


@pytest.fixture
def environ(source_environ, tmp_path):
    """Modules are found in the test's own folder, too."""
    return {**source_environ, "PYTHONPATH": f"{source_environ['PYTHONPATH']}:{tmp_path}"}


@pytest.fixture
def server(environ, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    started = ForkServer(environ)
    yield started
    started.close()


@pytest.fixture
def start(server, environ, tmp_path):
    """Starts a program of this text, whose output goes to the file `said`."""

    def begin(text: str, *arguments: str, imports=(), **more: str) -> ForkedProcess:
        program = tmp_path / "program.py"
        program.write_text(text)
        with (tmp_path / "said").open("ab") as said:
            files = (said.fileno(), said.fileno())
            return server.start([str(program), *arguments], {**environ, **more}, files, imports=imports)

    begin.said = (tmp_path / "said").read_text
    return begin


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 0),
        ("import sys; sys.exit(75)", 75),
        ("import sys; sys.exit('why')", 1),
        ("raise RuntimeError('why')", 1),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", -signal.SIGSEGV),
        ("import os; os._exit(3)", 3),
    ],
)
def test_it_ends_as_a_program_that_python_runs(start, text, code):
    program = start(text)
    assert program.wait() == program.code == code
    assert ("why" in start.said()) == ("why" in text)


def test_it_is_given_arguments_folder_variables_files_and_a_session_of_its_own(start, tmp_path):
    text = (
        "import os, sys\nprint(sys.argv[1:], os.getcwd(), os.environ['RANK'], os.getsid(0) == os.getpid())\n"
        "print(repr(sys.stdin.read()), 'error', file=sys.stderr)\nprint(sys.path[0])"
    )
    assert start(text, "a b", "--c", RANK="7").wait() == 0
    assert sorted(start.said().splitlines()) == sorted([f"['a b', '--c'] {tmp_path} 7 True", "'' error", str(tmp_path)])


def test_what_is_imported_once_is_there_in_every_program(start, tmp_path):
    (tmp_path / "dear.py").write_text("from pathlib import Path\nwith Path('imports').open('a') as f: f.write('x')\n")
    programs = [start("import dear, sys; sys.exit(0)", imports=["dear"]) for _ in range(3)]
    assert [program.wait() for program in programs] == [0, 0, 0]
    assert (tmp_path / "imports").read_text() == "x"


def test_what_is_imported_ahead_needs_no_program_and_is_there_for_the_first(server, start, tmp_path):
    (tmp_path / "ahead.py").write_text("from pathlib import Path\nPath('imported').touch()\n")
    server.import_ahead(["ahead"])
    wait_until((tmp_path / "imported").exists, "the import")
    assert server.running() == []
    assert start("import sys; sys.exit('ahead' not in sys.modules)").wait() == 0


def test_garbage_is_collected_in_programs_whatever_was_imported(start):
    assert start("import gc, sys; sys.exit(not gc.isenabled())", imports=["json", "no_such_module"]).wait() == 0


def test_an_import_that_fails_is_told_by_the_program(start, tmp_path):
    (tmp_path / "broken.py").write_text("1 / 0")
    assert start("import broken", imports=["broken"]).wait() == 1
    assert start.said().rstrip().endswith("ZeroDivisionError: division by zero")


def test_pyg_is_imported_without_torchs_compiler_which_is_there_when_asked_for(start):
    text = """
import sys, torch
print("torch._dynamo" in sys.modules, hasattr(sys.modules["torch_geometric"], "is_torch_instance"))
from torch_geometric import is_torch_instance
layer = torch.nn.Linear(1, 1)
print(is_torch_instance(layer, torch.nn.Linear), is_torch_instance(layer, torch.nn.ReLU))
print("torch._dynamo" in sys.modules)
compiled = torch.compile(layer, backend="eager")
print(is_torch_instance(compiled, torch.nn.Linear), isinstance(compiled, torch._dynamo.OptimizedModule))
print(compiled(torch.ones(1, 1)).shape == (1, 1))
"""
    assert start(text, imports=["torch", "torch_geometric"]).wait() == 0
    assert start.said().split() == ["False", "True", "True", "False", "True", "True", "True", "True"]


def test_programs_draw_other_random_numbers(start):
    text = "import random, numpy\nprint(random.random(), numpy.random.rand())"
    assert [start(text, imports=["numpy.random"]).wait() for _ in range(2)] == [0, 0]
    numbers = start.said().split()
    assert len(numbers) == len(set(numbers)) == 4


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_signal_while_modules_are_imported_ends_the_program(start, tmp_path, number):
    (tmp_path / "slow.py").write_text(SLOW)
    programs = [start("", imports=["slow"]) for _ in range(2)]
    wait_until((tmp_path / "importing").exists, "the import")
    for program in programs:
        if number == signal.SIGKILL:
            program.kill_session()
        else:
            program.send_signal(number)
    ends_with = signal.SIGTERM if number == signal.SIGINT else number
    assert [program.wait() for program in programs] == [-ends_with] * 2


@pytest.mark.parametrize("after_s", [0.0, 0.01, 0.03, 0.06])
def test_an_interrupt_while_python_starts_is_no_traceback(start, tmp_path, capfd, after_s):
    (tmp_path / "slow.py").write_text(SLOW)
    program = start("", imports=["slow"])
    time.sleep(after_s)
    program.send_signal(signal.SIGINT)
    assert program.wait() in (-signal.SIGTERM, -signal.SIGINT)
    assert "Traceback" not in capfd.readouterr().err


def test_a_signal_for_a_program_beside_one_that_runs_waits_for_it(start, tmp_path):
    (tmp_path / "slow.py").write_text(SLOW.replace("600", "1"))
    first = start("import time\ntime.sleep(600)")
    wait_until(lambda: first.pid, "the first program")
    second = start("import time\ntime.sleep(600)", imports=["slow"])
    second.send_signal(signal.SIGTERM)
    assert second.wait() == -signal.SIGTERM
    assert first.code is None
    first.kill_session()
    assert first.wait() == -signal.SIGKILL


def test_closing_does_not_wait_for_imports(server, start, tmp_path):
    (tmp_path / "slow.py").write_text(SLOW)
    program = start("", imports=["slow"])
    wait_until((tmp_path / "importing").exists, "the import")
    server.close()
    assert program.wait() == -signal.SIGTERM


def test_programs_die_with_the_fork_server(server, start):
    program = start("import time\ntime.sleep(600)")
    wait_until(lambda: program.pid, "the program")
    server._process.kill()
    assert program.wait() == -signal.SIGKILL
    wait_until(lambda: not is_alive(program.pid), "its end")
    assert start("").wait() == -signal.SIGKILL, "there is none to start it"


LAUNCHER = r"""
import os, sys, time
from graphmill.runtime.fork_server import ForkServer
server = ForkServer(os.environ)
program = server.start([sys.argv[1]], os.environ, (1, 2))
while program.pid is None: time.sleep(0.01)
if sys.argv[2] == "forks" and os.fork() == 0:
    os.write(1, f"child {os.getpid()}\n".encode())
    time.sleep(600)
os.write(1, f"server {server._process.pid} program {program.pid}\n".encode())
time.sleep(600)
"""


@pytest.mark.parametrize("how", ["plain", "forks"])
def test_all_die_with_a_killed_launcher_though_a_fork_of_it_lives(environ, tmp_path, how):
    program = tmp_path / "program.py"
    program.write_text("import time\ntime.sleep(600)")
    launcher = subprocess.Popen([sys.executable, "-c", LAUNCHER, program, how], env=environ, stdout=subprocess.PIPE)
    said = ""
    while said.count("\n") < (2 if how == "forks" else 1):
        said += os.read(launcher.stdout.fileno(), 1 << 10).decode()
    pids = {name: int(pid) for name, pid in re.findall(r"(\w+) (\d+)", said)}
    try:
        launcher.kill()
        launcher.wait(HANG_S)
        wait_until(lambda: not is_alive(pids["program"]) and not is_alive(pids["server"]), "both to end")
        assert how == "plain" or is_alive(pids["child"])
    finally:
        if how == "forks":
            os.kill(pids["child"], signal.SIGKILL)
        launcher.stdout.close()


def test_another_environment_needs_another_fork_server(server, environ):
    assert server.is_fit_for({**environ, TOKEN: "another attempt", "RANK": "1", "MASTER_PORT": "1"})
    assert not server.is_fit_for({**environ, "OMP_NUM_THREADS": "7"})
    assert not server.is_fit_for({name: value for name, value in environ.items() if name != "PATH"})


@pytest.mark.parametrize("searched", [".", ":", "/usr:lib"])
def test_another_working_folder_needs_another_fork_server_where_it_is_searched(
    environ, server, tmp_path, monkeypatch, searched
):
    (tmp_path / "other").mkdir()
    relative = {**environ, "PYTHONPATH": f"{environ['PYTHONPATH']}:{searched}"}
    of_folder = ForkServer(relative)
    assert of_folder.is_fit_for(relative)
    monkeypatch.chdir(tmp_path / "other")
    assert not of_folder.is_fit_for(relative)
    assert server.is_fit_for(environ), "it searches the same folders wherever it is"
    of_folder.close()


def test_a_fork_server_that_was_sent_a_signal_is_not_used_again(server, environ, start, tmp_path):
    """It may take a while to end, and what is asked of it meanwhile would end with it."""
    (tmp_path / "slow.py").write_text(SLOW)
    program = start("", imports=["slow"])
    wait_until((tmp_path / "importing").exists, "the import")
    server._process.send_signal(signal.SIGSTOP)  # so that it cannot end yet
    program.send_signal(signal.SIGTERM)
    assert not server.is_fit_for(environ)
    server._process.send_signal(signal.SIGCONT)
    assert program.wait() == -signal.SIGTERM


def test_other_limits_need_another_fork_server(server, environ):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    try:
        assert not server.is_fit_for(environ)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert server.is_fit_for(environ)


def test_a_fork_that_fails_is_told(environ, tmp_path):
    """As at a limit of processes, which root does not have."""
    code = (
        "import os, sys\nfrom graphmill.runtime import forked\n"
        "def fails(): raise BlockingIOError(11, 'Resource temporarily unavailable')\n"
        "os.fork = fails\nsys.exit(forked.main(sys.argv[1:]))"
    )
    (tmp_path / "fails.py").write_text(code)
    launcher = (
        "import os, sys\nfrom graphmill.runtime import fork_server\n"
        "fork_server.python_m = lambda name, *words: [sys.executable, sys.argv[1], *words]\n"
        "sys.exit(fork_server.start_program(['p'], os.environ, (1, 2)).wait())"
    )
    command = [sys.executable, "-c", launcher, str(tmp_path / "fails.py")]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=HANG_S)
    assert done.returncode == 2
    assert (
        done.stderr == "error: no process could be started: Resource temporarily unavailable\n  → start fewer ranks\n"
    )


@pytest.fixture
def environ_of_two_threads(environ):
    environ["OMP_NUM_THREADS"] = "2"


def test_it_has_one_thread_once_ranks_can_be_forked(environ_of_two_threads, start, tmp_path):
    """Threads of a parent do not run in a fork, and may hold a lock there for ever."""
    text = "import os\nprint(len(os.listdir(f'/proc/{os.getppid()}/task')))"
    tasks = [kind.task.partition(":")[0] for kind in all_kinds()]
    assert start(text, imports=["graphmill.train.worker", *tasks]).wait() == 0
    assert Path(tmp_path / "said").read_text() == "1\n"
