"""Hosts with a real sshd each, in namespaces of their own: nothing of this machine's ssh or network is touched."""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from waiting import HANG_S

from graphmill.monitor.ranks_here import rank_processes

PROGRAM = Path(__file__).parent / "programs" / "hosts.sh"
NUM_HOSTS = 4
PR_SET_PDEATHSIG = 1
TOOLS = ("sshd", "ssh-keygen", "ssh-keyscan", "rsync", "unshare", "nsenter", "ip")


def wait_until(true: Callable[[], object], *, what: str, timeout_s: float = HANG_S) -> None:
    end = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < end, f"{what} did not happen within {timeout_s} s"
        time.sleep(0.05)


def _die_with_the_tests() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


class Hosts:
    """host1 … host4."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("run", "key", "log", "unshared"):
            (folder / name).mkdir()
        for name in ("host", "id"):
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "key" / name)], check=True
            )
        self._process = subprocess.Popen(
            ["unshare", "--net", "--mount", "--uts", "--pid", "--mount-proc", "--fork", "--kill-child=KILL",
             "bash", str(PROGRAM), str(folder), str(NUM_HOSTS)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True, preexec_fn=_die_with_the_tests,  # noqa: PLW1509  # before any thread
        )  # fmt: skip
        wait_until(self._is_settled, what="the hosts' start")
        if self._process.poll() is not None:
            pytest.skip(f"no hosts in namespaces here: {self._process.stdout.read().strip()[-300:]}")
        child = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()[0]
        self._network = f"/proc/{child}/ns/net"
        self.known_hosts = folder / "known_hosts"
        key = " ".join((folder / "key" / "host.pub").read_text().split()[:2])
        self.known_hosts.write_text("".join(f"{self.address(i)} {key}\n" for i in range(1, NUM_HOSTS + 1)))
        self.ssh_config = self.write_ssh_config("config", self.known_hosts)

    def _is_settled(self) -> bool:
        return (self.folder / "run" / "ready").exists() or self._process.poll() is not None

    def write_ssh_config(self, name: str, known_hosts: Path | str) -> Path:
        path = self.folder / name
        entries = [f"Host host{i}\n HostName {self.address(i)}\n" for i in range(1, NUM_HOSTS + 1)]
        common = [
            "Host *", " User root", f" IdentityFile {self.folder}/key/id", " IdentitiesOnly yes", " IdentityAgent none",
            f" UserKnownHostsFile {known_hosts}", " GlobalKnownHostsFile /dev/null",
        ]  # fmt: skip
        path.write_text("".join(entries) + "\n".join(common) + "\n")
        return path

    @staticmethod
    def address(i: int) -> str:
        return f"10.79.0.{10 + i}"

    def here(self, *command: str) -> list[str]:
        """A command of a machine that reaches the hosts; the process keeps its number."""
        return ["nsenter", f"--net={self._network}", *command]

    def set_link(self, i: int, state: str) -> None:
        subprocess.run(self.here("ip", "link", "set", f"v{i}", state), check=True)

    def processes(self, i: int, *, word: str = "") -> dict[int, str]:
        """Command lines of what runs on a host, by process id on this machine."""
        network = (self.folder / "run" / f"host{i}.net").read_text().strip()
        found = {}
        for path in Path("/proc").iterdir():
            if not path.name.isdecimal():
                continue
            try:
                if str((path / "ns" / "net").readlink()) == network:
                    found[int(path.name)] = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
        return {pid: line for pid, line in found.items() if word in line and line}

    def ranks(self, run: Path, i: int) -> list[int]:
        """Process ids of the ranks of a run on a host, on this machine."""
        return sorted(self.processes(i).keys() & rank_processes(run).keys())

    def ours(self) -> dict[int, str]:
        """Agents, ranks and what they started, on all hosts."""
        every = [self.processes(i) for i in range(1, NUM_HOSTS + 1)]
        return {pid: line for found in every for pid, line in found.items() if " -m graphmill." in line}

    def down(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@pytest.fixture(scope="session")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    missing = [tool for tool in TOOLS if shutil.which(tool, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    if os.geteuid() != 0:
        pytest.skip("hosts in network namespaces with an sshd each need root")
    up = Hosts(tmp_path_factory.mktemp("hosts"))
    yield up
    up.down()


@pytest.fixture
def hosts_file(hosts: Hosts, tmp_path: Path, source_environ: dict[str, str]):
    """Writes a hosts.yaml for host1 … hostN."""

    def write(num: int, *, of: dict[int, dict] | None = None, **defaults: object) -> Path:
        entries = [{"address": f"host{i}", **(of or {}).get(i, {})} for i in range(1, num + 1)]
        environment = {"PYTHONPATH": source_environ["PYTHONPATH"]}
        path = tmp_path / "hosts.yaml"
        common = {"python": sys.executable, "ranks": 1, "environment": environment, **defaults}
        path.write_text(yaml.safe_dump({"defaults": common, "hosts": entries}))
        return path

    return write
