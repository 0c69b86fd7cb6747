"""Another release of Slurm beside this machine's: packages of another Debian suite, unpacked into a folder.

Nothing on the machine is changed. apt fetches with lists and a cache of its own, from the mirror that this machine's
apt uses; a dev cluster lays the folder over /usr in its own mount namespace (pid1.py), libraries included.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from graphmill.base.errors import UserError

LAID_OVER: Final = ("bin", "sbin", "lib", "lib64")
"""Folders of /usr."""

_WANTED: Final = ("slurmctld", "slurmd", "slurm-client", "slurmdbd", "munge")
_KEYS: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_TARGETS: Final = ("--format", "$(ORIGIN) $(LABEL) $(COMPONENT) $(REPO_URI)", "Created-By: Packages")
_CONFIGURATION: Final = """Dir::State "{folder}/state";
Dir::State::status "{folder}/status";
Dir::Cache "{folder}/cache";
Dir::Etc::sourcelist "{folder}/sources.list";
Dir::Etc::sourceparts "{folder}/none";
APT::Sandbox::User "";
Acquire::Languages "none";
"""


def root_of(suite: str) -> Path:
    """Where the packages of a suite are unpacked."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    if re.search(r'[:,\\"]', str(cache)):
        raise UserError(f'{cache} cannot be mounted: its name holds one of : , \\ "', fix="export XDG_CACHE_HOME=…")
    return cache / "graphmill" / "slurm" / suite


def installed(suite: str) -> Path:
    """The folder of an unpacked suite."""
    root = root_of(suite)
    if not root.is_dir():
        raise UserError(
            f"Slurm of Debian {suite} is not unpacked here: there is no {root}",
            fix=f"graphmill devcluster install {suite}",
        )
    return root


def install(suite: str, mirror: str | None = None) -> Path:
    """Fetch and unpack Slurm's packages and the libraries that they need, again if they are there. Whole or absent."""
    root = root_of(suite)
    apt = root.with_name(f"{suite}.apt")
    for folder in ("state/lists/partial", "cache/archives/partial", "none", "packages"):
        (apt / folder).mkdir(parents=True, exist_ok=True)
    (apt / "status").touch()
    signed = f"[signed-by={_KEYS}] " if _KEYS.exists() else ""
    (apt / "sources.list").write_text(f"deb {signed}{mirror or _mirror()} {suite} main\n", encoding="utf-8")
    (apt / "apt.conf").write_text(_CONFIGURATION.format(folder=apt), encoding="utf-8")
    _apt(apt, "update", "--error-on=any")
    said = _apt(apt, "install", "--simulate", "--no-install-recommends", *_WANTED)
    names = [name for name in re.findall(r"^Inst (\S+)", said, re.MULTILINE) if is_taken(name)]
    shutil.rmtree(apt / "packages")
    (apt / "packages").mkdir()
    _apt(apt, "download", *names, cwd=apt / "packages")
    new = root.with_name(f"{suite}.new")
    shutil.rmtree(new, ignore_errors=True)
    _unpack(sorted((apt / "packages").glob("*.deb")), new)
    shutil.rmtree(root, ignore_errors=True)
    new.rename(root)
    shutil.rmtree(apt)
    return root


def version_of(root: Path) -> str:
    """As its slurmd says: `slurm-wlm 24.11.5`. With its own libraries, for this machine's may be too old."""
    loader = next(root.glob("usr/lib*/ld-linux*"), None) or next(root.glob("usr/lib/*/ld-linux*"), None)
    folders = ":".join(str(path) for path in [*root.glob("usr/lib/*-linux-*"), *root.glob("usr/lib/*-linux-*/slurm*")])
    if loader is None:
        raise UserError(f"{root} holds no libraries", fix=f"graphmill devcluster install {root.name}")
    words = [str(loader), "--library-path", folders, str(root / "usr/sbin/slurmd"), "-V"]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()


def is_taken(package: str) -> bool:
    """Whether a package that Slurm depends on is laid over this machine's: what is no library stays as it is.

    >>> [name for name in ("slurmd", "libc6", "munge", "perl-base", "libtext-charwidth-perl") if is_taken(name)]
    ['slurmd', 'libc6', 'munge']
    """
    return package in _WANTED or package.startswith("slurm") or bool(re.fullmatch(r"lib(?!.*-perl$).*", package))


def _mirror() -> str:
    """Where this machine's apt has Debian's main packages from."""
    rows = [line.split(" ", 3) for line in _run(["apt-get", "indextargets", *_TARGETS]).splitlines()]
    found = [row[3] for row in rows if row[:3] == ["Debian", "Debian", "main"]]
    if not found:
        raise UserError(
            "apt knows no mirror of Debian here, or has not read its lists yet",
            fix="apt-get update, or name a mirror: graphmill devcluster install SUITE --mirror URL",
        )
    return found[0]


def _unpack(packages: Sequence[Path], root: Path) -> None:
    """Of each the programs and libraries; scripts of packages are not run, so their alternatives are linked here."""
    for package in packages:
        _run(["dpkg-deb", "--extract", str(package), str(root)])
    for folder in (root, root / "usr"):
        for path in folder.iterdir():
            if path.name not in (*LAID_OVER, "usr"):
                shutil.rmtree(path)
    for program in root.glob("usr/sbin/*-wlm"):
        with suppress(FileExistsError):
            program.with_name(program.name.removesuffix("-wlm")).symlink_to(program.name)


def _apt(folder: Path, *words: str, cwd: Path | None = None) -> str:
    return _run(["apt-get", "--quiet", "--assume-yes", *words], APT_CONFIG=str(folder / "apt.conf"), cwd=cwd)


def _run(command: Sequence[str], *, cwd: Path | None = None, **environ: str) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=cwd, stdin=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C", **environ},
        )  # fmt: skip
    except FileNotFoundError:
        raise UserError(
            f"{command[0]} is not here: other releases of Slurm are Debian's packages",
            fix="do it on Debian, or on a system derived from it",
        ) from None
    if done.returncode:
        said = " | ".join((done.stderr or done.stdout).strip().splitlines()[-3:])
        raise UserError(f"{' '.join(command[:4])} fails: {said}", fix="see whether the mirror has that suite")
    return done.stdout
