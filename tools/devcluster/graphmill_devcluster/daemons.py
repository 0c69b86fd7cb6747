"""The daemons of the dev cluster that this process is in. Each is started unless it runs, and waited for."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from graphmill.base.errors import UserError
from graphmill_devcluster.description import HOME, Description, Host, Ports, head_address
from graphmill_devcluster.hosts import enter, log_tail

WAIT_S: Final = 60.0
ACCOUNTS: Final = ("lab", "teaching")
QOS: Final = ("high",)
_MUNGE_SOCKET: Final = HOME / "munge/socket"
_MARIADB_SOCKET: Final = HOME / "db.sock"
_TICK_S: Final = 0.03
_START_AGAIN_S: Final = 10.0


def start_munge() -> None:
    """munged with a key of its own."""
    key = HOME / "munge/key"
    if not key.exists():
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(1024))
    _spawn(
        "munged",
        ["munged", "--force", "--num-threads=4", f"--socket={_MUNGE_SOCKET}", f"--key-file={key}",
         f"--pid-file={HOME / 'munged.pid'}", f"--log-file={HOME / 'log/munged.log'}",
         f"--seed-file={HOME / 'munge/seed'}"],
    )  # fmt: skip
    _wait_for("munged", lambda: _succeeds(["munge", "-S", str(_MUNGE_SOCKET), "-n"]))


def start_database(cluster: Description) -> None:
    """MariaDB, as small as it goes: it holds a day's jobs at most, and loses them with the cluster.

    Its temporary tables are named for process ids, which clusters share: they do not go into this machine's /tmp.
    """
    files, temporary = HOME / "db", HOME / "db.tmp"
    temporary.mkdir(exist_ok=True)
    small = ("--innodb-log-file-size=8M", "--skip-name-resolve", f"--user={cluster.user}", f"--tmpdir={temporary}")
    if not (files / "mysql").exists():
        _run(
            "mariadb-install-db",
            ["mariadb-install-db", "--no-defaults", f"--datadir={files}", *small, "--skip-test-db", "--force",
             "--auth-root-authentication-method=socket", f"--auth-root-socket-user={cluster.user}"],
        )  # fmt: skip
    _spawn(
        "mariadbd",
        ["mariadbd", "--no-defaults", f"--datadir={files}", *small, f"--socket={_MARIADB_SOCKET}",
         f"--port={Ports.mariadb}", "--bind-address=127.0.0.1", f"--pid-file={HOME / 'mariadbd.pid'}",
         "--innodb-buffer-pool-size=24M", "--innodb-lock-wait-timeout=900", "--innodb-flush-log-at-trx-commit=0",
         "--innodb-flush-method=fsync", "--max-connections=50", "--performance-schema=OFF", "--key-buffer-size=1M"],
        detach=True,
    )  # fmt: skip
    client = ["mariadb", "--no-defaults", f"--socket={_MARIADB_SOCKET}", f"--user={cluster.user}", "--execute"]
    _wait_for("mariadbd", lambda: _succeeds([*client, "select 1"]))
    password = (HOME / "etc/password").read_text(encoding="ascii")
    _run(
        "mariadb",
        [*client, "create database if not exists slurm_acct_db; create user if not exists slurm@'127.0.0.1' "
         f"identified by '{password}'; grant all on slurm_acct_db.* to slurm@'127.0.0.1';"],
    )  # fmt: skip


def start_accounting() -> None:
    """slurmdbd, and the cluster's name in it."""
    started: list[float] = []

    def listens() -> bool:
        """slurmdbd exits if the database does not answer in time, as on a very busy machine: it is then restarted."""
        if not started or (time.monotonic() - started[-1] > _START_AGAIN_S and process_of("slurmdbd") is None):
            started.append(time.monotonic())
            _spawn("slurmdbd", ["slurmdbd"])
        return _listens(Ports.slurmdbd)

    _wait_for("slurmdbd", listens)
    known = _run("sacctmgr", ["sacctmgr", "--noheader", "--parsable2", "show", "cluster", "format=cluster"]).split()
    if "devcluster" not in known:
        _run("sacctmgr", ["sacctmgr", "--immediate", "add", "cluster", "devcluster"])


def add_accounts(cluster: Description) -> None:
    """Accounts that the user may charge, and a second QOS besides normal."""
    names = ",".join(ACCOUNTS)
    known = _run("sacctmgr", ["sacctmgr", "--noheader", "--parsable2", "show", "account", "format=account"]).split()
    if set(ACCOUNTS) <= set(known):
        return
    for words in (
        ("add", "qos", ",".join(QOS)),
        ("add", "account", names),
        ("add", "user", cluster.user, f"account={names}", f"qos=normal,{','.join(QOS)}"),
        ("modify", "user", cluster.user, "set", f"defaultaccount={ACCOUNTS[0]}"),
    ):
        _run("sacctmgr", ["sacctmgr", "--immediate", *words])


def start_slurmctld() -> None:
    """The controller."""
    _spawn("slurmctld", ["slurmctld"])
    _wait_for("slurmctld", lambda: _listens(Ports.slurmctld))


def start_slurmd(host: Host) -> None:
    """The host's own Slurm daemon."""
    _spawn(f"slurmd.{host.name}", ["slurmd", "-N", host.name], host=host)


def start_sshd(host: Host) -> None:
    """The host's login. It must be called by its full path, with which it calls itself."""
    Path("/run/sshd").mkdir(exist_ok=True)
    program = next(path for folder in os.environ["PATH"].split(":") if (path := Path(folder) / "sshd").exists())
    log = HOME / "log" / f"sshd.{host.name}.log"
    _spawn(
        f"sshd.{host.name}", [str(program), "-f", str(HOME / "ssh" / f"{host.name}.conf"), "-E", str(log)], host=host
    )


def start_services(cluster: Description, host: Host) -> None:
    """What runs on a host."""
    start_slurmd(host)
    if cluster.ssh:
        start_sshd(host)


def stop(name: str) -> None:
    """End one of munged, mariadbd, slurmdbd, slurmctld, and wait for its end."""
    number = process_of(name)
    if number is None:
        return
    os.kill(number, signal.SIGTERM)
    wait_until(f"the end of {name}", lambda: process_of(name) is None)


def process_of(name: str) -> int | None:
    """The id of a daemon on the head, or None if it does not run."""
    with suppress(FileNotFoundError, ProcessLookupError, ValueError):
        number = int((HOME / f"{name}.pid").read_text(encoding="ascii"))
        # Debian's /usr/sbin/slurmctld is a link to slurmctld-wlm
        if Path(f"/proc/{number}/exe").readlink().name.startswith(name):
            return number
    return None


def wait_until(what: str, holds: Callable[[], bool], *, log: str = "slurmctld", wait_s: float = WAIT_S) -> None:
    """Wait for `holds`; the end of that log is in the error."""
    give_up = time.monotonic() + wait_s
    while not holds():
        if time.monotonic() > give_up:
            raise UserError(
                f"the dev cluster still waits after {wait_s:.0f} s for {what}: {log_tail(log)}",
                fix="look into its logs: graphmill devcluster run --keep-logs FOLDER -- COMMAND",
            )
        time.sleep(_TICK_S)


def idle_hosts() -> set[str]:
    """Names of the hosts that would accept a job now, or run one."""
    command = ["sinfo", "--noheader", "--Node", "--states=idle,alloc,mix", "--format=%N"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return set(done.stdout.split()) if done.returncode == 0 else set()


def _spawn(name: str, command: Sequence[str], *, host: Host | None = None, detach: bool = False) -> None:
    """Start a daemon, unless it runs, in a session of its own, so that Ctrl-C does not reach it."""
    if host is None and process_of(name) is not None:
        return
    words = list(command) if host is None else enter(host, command)
    with (HOME / "log" / f"{name}.out.log").open("ab") as log:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=HOME / "log"
        )
        if not detach and process.wait():
            raise UserError(
                f"{name} does not start: {log_tail(name)} | {log_tail(f'{name}.out')}",
                fix="graphmill doctor says what this machine has",
            )


def _wait_for(name: str, holds: Callable[[], bool]) -> None:
    wait_until(name, holds, log=name)


def _run(name: str, command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        said = " | ".join((done.stderr or done.stdout).strip().splitlines()[-3:])
        raise UserError(f"{name} fails: {said}", fix="graphmill devcluster run --no-accounting -- COMMAND")
    return done.stdout


def _succeeds(command: Sequence[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False, stdin=subprocess.DEVNULL).returncode == 0


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((head_address(), port)) == 0
