"""What a dev cluster needs of the machine: programs, and the right to make namespaces."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from graphmill.base.errors import UserError
from graphmill_devcluster import control_groups
from graphmill_devcluster.description import Description, environment

_SLURM: Final[Mapping[str, str]] = {
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sbatch": "slurm-client",
    "munged": "munge",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
}
_ACCOUNTING: Final[Mapping[str, str]] = {
    "slurmdbd": "slurmdbd",
    "mariadbd": "mariadb-server-core",
    "mariadb-install-db": "mariadb-server-core",
    "mariadb": "mariadb-client-core",
}
_SSH: Final[Mapping[str, str]] = {"sshd": "openssh-server", "ssh": "openssh-client", "ssh-keygen": "openssh-client"}
_PROBE: Final = (
    "hostname probe; mount -t tmpfs tmpfs /run; "
    "ip link add probe0 type veth peer name probe1; ip link add probe2 type bridge"
)


def own_user_namespace() -> list[str]:
    """Options of unshare without root. The user id is kept: mapped to root, Slurm's daemons refuse to start."""
    return [] if os.geteuid() == 0 else ["--user", "--map-current-user", "--keep-caps"]


def missing_packages(cluster: Description) -> list[str]:
    """Names of the Debian packages that must be installed first."""
    needed = {**_SLURM, **(_ACCOUNTING if cluster.accounting else {}), **(_SSH if cluster.ssh else {})}
    path = environment(dict(os.environ))["PATH"]
    if cluster.slurm_root is not None:
        path = f"{cluster.slurm_root}/usr/bin:{cluster.slurm_root}/usr/sbin:{path}"
    return sorted({package for program, package in needed.items() if shutil.which(program, path=path) is None})


def check_requirements(cluster: Description) -> None:
    """Raise UserError unless a dev cluster can run here."""
    packages = missing_packages(cluster)
    if packages:
        raise UserError(
            f"a dev cluster needs packages that are not installed: {' '.join(packages)}",
            fix=f"apt-get install --no-install-recommends {' '.join(packages)}",
        )
    refusal = why_no_namespaces()
    if refusal:
        raise UserError(
            f"a dev cluster needs namespaces of its own, and this machine refuses them: {refusal}",
            fix="run it as root, or allow user namespaces (sysctl kernel.apparmor_restrict_unprivileged_userns=0; "
            "in a container: --cap-add SYS_ADMIN --cap-add NET_ADMIN)",
        )
    refusal = "" if cluster.slurm_root is None else why_not_laid_over(cluster.slurm_root)
    if refusal:
        raise UserError(
            f"the packages in {cluster.slurm_root} cannot be laid over /usr here: {refusal}",
            fix="a kernel with overlay file systems, on a Debian whose /lib is a link to /usr/lib",
        )
    if cluster.out_of_memory == "cgroup" and not control_groups.available():
        raise UserError(
            "memory can be limited by control groups only as root, and where version 1 of them is mounted",
            fix="--out-of-memory polled",
        )


def why_not(cluster: Description | None = None) -> str:
    """Why no dev cluster can run here, in one sentence; empty if it can."""
    try:
        check_requirements(Description() if cluster is None else cluster)
    except UserError as error:
        return error.message
    return ""


@cache
def why_no_namespaces() -> str:
    """Why the kernel or the container does not allow it, found by trying; empty if it does."""
    return _refusal(["--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "--mount-proc"], _PROBE)


@cache
def why_not_laid_over(root: Path) -> str:
    """Why another release of Slurm cannot be used here, found by trying; empty if it can."""
    if not Path("/lib").is_symlink():
        return "/lib is a folder of its own"
    return _refusal(["--mount"], 'mount -t overlay overlay -o "lowerdir=$1/usr/sbin:/usr/sbin" /usr/sbin', str(root))


def _refusal(namespaces: Sequence[str], script: str, *words: str) -> str:
    """Run a shell script in new namespaces; what it says if it fails."""
    command = ["unshare", *own_user_namespace(), *namespaces, "--", "sh", "-ec", script, "sh", *words]
    tried = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env=environment(dict(os.environ)),
    )
    return " ".join(tried.stderr.split()) or "it does not say why" if tried.returncode else ""
