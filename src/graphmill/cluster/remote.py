"""Another machine, as `pull` and `submit --on` reach it: ssh that checks host keys and asks for nothing, and rsync."""

import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from graphmill.base.errors import UserError

_SSH: Final = ("ssh", "-o", "StrictHostKeyChecking=yes", "-o", "BatchMode=yes")
_SOURCE: Final = re.compile(
    r"(?:(?P<user>[^@:/\s-][^@:/\s]*)@)?(?P<host>[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.%]+\]):(?P<path>.*)", re.S
)
_SSH_FAILED: Final = 255


@dataclass(frozen=True, slots=True)
class Source:
    """`[USER@]HOST:PATH`."""

    login: str
    path: str

    @classmethod
    def parse(cls, text: str) -> "Source":
        """Parse it; a `UserError` says what it should look like."""
        match = _SOURCE.fullmatch(text)
        is_daemon = "://" in text or (match is not None and match["path"].startswith(":"))
        if match is None or match["host"].startswith("-") or is_daemon or not text.isprintable():
            raise UserError(f"{text!r} does not name a folder on another machine", fix="write USER@HOST:PATH")
        user = f"{match['user']}@" if match["user"] else ""
        path = match["path"].removeprefix("~/")  # what is not absolute begins at the home directory anyway
        if path == "~" or not path:
            path = "."
        if path.startswith("-"):
            path = f"./{path}"
        return cls(user + match["host"], path.rstrip("/") or "/")

    @property
    def rsync_name(self) -> str:
        """What is in the folder, for rsync."""
        return f"{self.login}:{self.path.rstrip('/')}/"


def ssh_command(source: Source, config: Path | None) -> list[str]:
    """What precedes the command that is to run there, as one word: its shell splits it again."""
    return [*_SSH, *([] if config is None else ["-F", str(config)]), "--", source.login]


def ssh_for_rsync(config: Path | None) -> str:
    """For rsync, which splits it into words at spaces and knows quotes; no shell reads it."""
    quoted = [] if config is None else ["-F", "'" + str(config).replace("'", "''") + "'"]
    return " ".join([*_SSH, *quoted])


def need_rsync() -> None:
    """Raise a `UserError` where one of the programs is missing."""
    if shutil.which("rsync") is None or shutil.which("ssh") is None:
        raise UserError(
            "rsync or ssh is not installed here", fix="install both (Debian: apt-get install rsync openssh-client)"
        )


def failure(source: Source, code: int, said: str, config: Path | None) -> UserError:
    """What ssh or rsync has reported, and what to do about it."""
    lines = [line for line in said.splitlines() if line.strip()]
    told = "".join(f"\n  | {line}" for line in lines[-6:])
    host = source.login.rpartition("@")[2]
    option = f"-F {shlex.quote(str(config))} " if config else ""
    if "Host key verification failed" in said:
        scan, file = _accepting(source, config)
        return UserError(
            f"the host key of {host} is not known, or differs from the known one, so the host cannot be verified{told}",
            fix=f"compare its fingerprint (`{scan} | ssh-keygen -lf -`) with what its owner says,"
            f" then accept it: `{scan} >> {file}`",
        )
    if "Permission denied" in said:
        return UserError(
            f"{source.login}: permission denied (none of your SSH keys was accepted){told}",
            fix=f"`ssh-copy-id {source.login}`, or `ssh-add` the key",
        )
    if code == _SSH_FAILED:
        return UserError(f"{host} cannot be reached{told}", fix=f"see what `ssh {option}{source.login}` says")
    if "rsync: command not found" in said or "rsync: not found" in said:
        return UserError(f"{host} has no rsync", fix=f"install rsync on {host}")
    if "No such file or directory" in said and "change_dir" in said:
        return UserError(f"there is no folder {source.path} on {host}", fix="name the logs folder there")
    return UserError(
        f"rsync ended with exit status {code}{told}", fix="correct that, and give the same command again: it continues"
    )


def _accepting(source: Source, config: Path | None) -> tuple[str, str]:
    """The command that prints the host's key, and the file that it belongs in, as ssh itself resolves them."""
    command = ["ssh", "-G", *(["-F", str(config)] if config else []), "--", source.login]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    told = dict(line.partition(" ")[::2] for line in done.stdout.splitlines())
    host, port = told.get("hostname", source.login.rpartition("@")[2]), told.get("port", "22")
    scan = f"ssh-keyscan {'' if port == '22' else f'-p {port} '}{shlex.quote(host)}"
    if alias := told.get("hostkeyalias"):
        scan += f" | sed {shlex.quote(f's/^[^ ]*/{alias}/')}"
    file = told.get("userknownhostsfile", "~/.ssh/known_hosts").split(" ")[0]
    return scan, file if file.startswith("~/") else shlex.quote(file)
