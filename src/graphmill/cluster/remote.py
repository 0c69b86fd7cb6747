"""Another machine, as `pull` and `submit --on` reach it: ssh that checks host keys and asks for nothing, and rsync."""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE
from typing import IO, Final

from graphmill.base.errors import UserError

_SSH: Final = ("ssh", "-o", "StrictHostKeyChecking=yes", "-o", "BatchMode=yes")
_SOURCE: Final = re.compile(
    r"(?:(?P<user>[^@:/\s-][^@:/\s]*)@)?(?P<host>[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.%]+\]):(?P<path>.*)", re.S
)
_SSH_FAILED: Final = 255
_MOST_ANSWER: Final = 256 << 20  # bytes; a list of a million files has less
_PIECE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Source:
    """A folder on another machine: `[USER@]HOST:PATH`."""

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
    """The ssh command for rsync, which splits it into words at spaces and knows quotes; no shell reads it."""
    quoted = [] if config is None else ["-F", "'" + str(config).replace("'", "''") + "'"]
    return " ".join([*_SSH, *quoted])


@dataclass(frozen=True, slots=True)
class Answer:
    """How a command ended, and what it said: bytes, for a host may send any."""

    returncode: int
    out: bytes
    err: bytes

    @property
    def text(self) -> str:
        """What it printed."""
        return self.out.decode(errors="replace")

    @property
    def complaint(self) -> str:
        """What it printed as errors."""
        return self.err.decode(errors="replace")


def answer_of(command: Sequence[str], *, stdin: bytes = b"", environ: Mapping[str, str] | None = None) -> Answer:
    """Run a command that speaks with another machine, with `stdin` as its standard input.

    `UserError` if it answers without end: what another machine sends is not to fill this one's memory.
    """
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=environ) as process:
        with ThreadPoolExecutor(2) as readers:
            said = [readers.submit(_heard, pipe, process) for pipe in (process.stdout, process.stderr)]
            _tell(process.stdin, stdin)
        out, err = (each.result() for each in said)
    if max(len(out), len(err)) > _MOST_ANSWER:
        raise UserError(
            f"{command[0]} was sent more than {_MOST_ANSWER >> 20} MiB that are no file", fix="see what answers there"
        )
    return Answer(process.returncode, bytes(out), bytes(err))


def _tell(pipe: IO[bytes] | None, stdin: bytes) -> None:
    if pipe is not None:
        with suppress(BrokenPipeError), pipe:  # it ended before it had heard all: its status says why
            pipe.write(stdin)


def _heard(pipe: IO[bytes] | None, process: "subprocess.Popen[bytes]") -> bytearray:
    found = bytearray()
    while pipe is not None and (piece := os.read(pipe.fileno(), _PIECE)):
        found += piece
        if len(found) > _MOST_ANSWER:
            process.kill()
            break
    return found


def need_rsync() -> None:
    """Raise a `UserError` where one of the programs is missing."""
    if shutil.which("rsync") is None or shutil.which("ssh") is None:
        raise UserError(
            "rsync or ssh is not installed here", fix="install both (Debian: apt-get install rsync openssh-client)"
        )


def failure(source: Source, code: int, stderr: str, config: Path | None) -> UserError:
    """What ssh or rsync has reported, and what to do about it."""
    lines = [line for line in stderr.splitlines() if line.strip()]
    told = "".join(f"\n  | {line}" for line in lines[-6:])
    host = source.login.rpartition("@")[2]
    option = f"-F {shlex.quote(str(config))} " if config else ""
    if "Host key verification failed" in stderr:
        scan, file = _accepting(source, config)
        return UserError(
            f"the host key of {host} is not known, or differs from the known one, so the host cannot be verified{told}",
            fix=f"compare its fingerprint (`{scan} | ssh-keygen -lf -`) with what its owner says,"
            f" then accept it: `{scan} >> {file}`",
        )
    if "Permission denied" in stderr:
        return UserError(
            f"{source.login}: permission denied (none of your SSH keys was accepted){told}",
            fix=f"`ssh-copy-id {source.login}`, or `ssh-add` the key",
        )
    if code == _SSH_FAILED:
        return UserError(f"{host} cannot be reached{told}", fix=f"see what `ssh {option}{source.login}` says")
    if "rsync: command not found" in stderr or "rsync: not found" in stderr:
        return UserError(f"{host} has no rsync", fix=f"install rsync on {host}")
    if "No such file or directory" in stderr and "change_dir" in stderr:
        return UserError(f"there is no folder {source.path} on {host}", fix="name the logs folder there")
    return UserError(
        f"rsync ended with exit status {code}{told}", fix="correct that, and give the same command again: it continues"
    )


def _accepting(source: Source, config: Path | None) -> tuple[str, str]:
    """The command that prints the host's key, and the file that it belongs in, as ssh itself resolves them."""
    command = ["ssh", "-G", *(["-F", str(config)] if config else []), "--", source.login]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    told = dict(line.partition(" ")[::2] for line in done.stdout.splitlines())
    host, port = told.get("hostname", source.login.rpartition("@")[2]), told.get("port", "22")
    scan = f"ssh-keyscan {'' if port == '22' else f'-p {port} '}{shlex.quote(host)}"
    if alias := told.get("hostkeyalias"):
        scan += f" | sed {shlex.quote(f's/^[^ ]*/{alias}/')}"
    file = told.get("userknownhostsfile", "~/.ssh/known_hosts").split(" ")[0]
    return scan, file if file.startswith("~/") else shlex.quote(file)
