"""The configuration files of a dev cluster, rendered from templates."""

import os
import secrets
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from graphmill.base.errors import UserError
from graphmill_devcluster.description import HEAD, HOME, LOCAL, Description, Ports, head_address

_FOLDERS: Final = ("db", "dev", "disks", "etc", "hosts", "log", "munge", "slurmctld", "spool", "ssh")
_SPARE_DEVICES: Final = ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "fuse")
_NULL: Final = os.makedev(1, 3)


def write_configuration(cluster: Description) -> None:
    """Make the folders and write every file that a daemon reads."""
    for name in _FOLDERS:
        (HOME / name).mkdir(parents=True, exist_ok=True)
    for host in cluster.hosts:
        (HOME / "spool" / host.name).mkdir(exist_ok=True)
    facts = _facts(cluster)
    for name in ("slurm.conf", "cgroup.conf", "hosts", *(["gres.conf"] if cluster.gpus else [])):
        _write(HOME / "etc" / name, render(f"{name}.jinja", facts))
    for name in ("task-prolog", "mail"):
        _write(HOME / "etc" / name, render(f"{name}.jinja", facts), mode=0o755)
    _write(HOME / "etc/resolv.conf", "options timeout:1 attempts:1\n")  # no name server: lookups fail fast
    _write(HOME / "etc/slurmdbd.conf", render("slurmdbd.conf.jinja", facts), mode=0o600)
    cluster.save()


def write_ssh(cluster: Description) -> None:
    """A key of the user, one of each host, and the files with which ssh finds and knows them."""
    folder = HOME / "ssh"
    _make_key(folder / "id")
    known: list[str] = []
    for host in cluster.hosts:
        key = folder / f"{host.name}.key"
        _make_key(key)
        kind, public, *_ = key.with_suffix(".key.pub").read_text(encoding="ascii").split()
        known.append(f"{host.name},{host.address} {kind} {public}\n")
        _write(folder / f"{host.name}.conf", render("sshd_config.jinja", {"host": host, "home": HOME}))
    _write(folder / "known_hosts", "".join(known))
    _write(folder / "config", render("ssh_config.jinja", {"cluster": cluster, "home": HOME}))


def render(template: str, facts: dict[str, Any]) -> str:
    """A template of this package, filled in. A missing value is a bug, not an empty line."""
    environment = Environment(
        loader=PackageLoader("graphmill_devcluster"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # configuration files, not HTML; the values are checked by Description
    )
    return environment.get_template(template).render(facts)


def idle_cgroup_plugin(version: Sequence[int]) -> str:
    """The value of CgroupPlugin= if nothing is constrained; older versions have no "disabled"."""
    return "disabled" if tuple(version) >= (23, 11) else "cgroup/v1"


def slurm_version() -> tuple[int, ...]:
    """As `slurmd -V` prints it: (22, 5, 8)."""
    said = subprocess.run(["slurmd", "-V"], capture_output=True, text=True, check=True).stdout
    return tuple(int(part) for part in said.split()[-1].split(".") if part.isdecimal())


def _facts(cluster: Description) -> dict[str, Any]:
    return {
        "cluster": cluster,
        "cgroup": cluster.out_of_memory == "cgroup",
        "devices": _fake_gpus(cluster.gpus),
        "head": HEAD,
        "head_address": head_address(),
        "home": HOME,
        "idle_plugin": idle_cgroup_plugin(slurm_version()),
        "local": LOCAL,
        "password": _password(),
        "ports": Ports,
    }


def _fake_gpus(number: int) -> list[Path]:
    """Character devices; existing ones if we may not make any."""
    devices = [HOME / "dev" / f"nvidia{index}" for index in range(number)]
    for index, device in enumerate(devices):
        with suppress(FileExistsError):
            try:
                os.mknod(device, 0o20666, _NULL)
            except PermissionError:
                devices[index] = Path("/dev") / _SPARE_DEVICES[index]
    return devices


def _password() -> str:
    path = HOME / "etc/password"
    if not path.exists():
        _write(path, secrets.token_hex(16), mode=0o600)
    return path.read_text(encoding="ascii")


def _make_key(path: Path) -> None:
    if path.exists():
        return
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "devcluster", "-f", str(path)]
    made = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if made.returncode:
        raise UserError(f"ssh-keygen fails: {made.stderr.strip()}", fix="graphmill devcluster run --no-ssh -- COMMAND")


def _write(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Not with base/files.py: nothing here survives a power-off, so nothing needs to be synced."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)  # of a process that was killed
    # With its mode from the start: a password that is readable until a chmod is readable.
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8") as file:
        os.fchmod(file.fileno(), mode)  # the umask may have taken bits away
        file.write(text)
    temporary.replace(path)
