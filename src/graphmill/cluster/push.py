"""`submit --on`: send an experiment and the user's own code to another machine, and submit there.

What is sent are files below one folder there: the YAML files that are named, and the modules that they name by dotted
path, with what those import (`jobs/own_code.py`). Nothing is deleted there, and nothing is overwritten that someone has
changed there since: SENT_FILE has the checksums of what was sent last. A job that waits has its own copy of the code,
so what is sent later does not change it.
"""

import hashlib
import json
import logging
import os
import shlex
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import yaml

from graphmill.base.errors import UserError
from graphmill.base.json_text import parse_json
from graphmill.cluster.jobs.own_code import find_modules
from graphmill.cluster.remote import Answer, Source, answer_of, failure, need_rsync, ssh_command, ssh_for_rsync

_log = logging.getLogger(__name__)

SENT_FILE: Final = ".graphmill-sent.json"
_SSH_FAILED: Final = 255
_NOT_FOUND: Final = 127
_YAML: Final = (".yaml", ".yml")
State = Literal["new", "changed", "same", "changed there"]


def files_to_send(named: Sequence[str], overrides: Sequence[str], environ: Mapping[str, str]) -> dict[str, bytes]:
    """Files to send by their path below the working folder: YAML files in `named`, those that they name, and modules.

    Recipes are there already. Modules are those that the files, and `overrides` (`key=value`), name by dotted path.

    Raises `UserError` for a file outside the working folder, and for modules of one name.
    """
    files: dict[str, bytes] = {}
    modules = [module for text in overrides for module in _modules(_override(text))]
    todo = [Path(name) for name in named]
    while todo:
        path = todo.pop()
        if path.suffix not in _YAML or not path.is_file() or str(path) in files:
            continue
        if path.is_absolute() or ".." in path.parts:
            raise UserError(
                f"{path} is outside the folder that this is called in, and would have no place there",
                fix=f"cd {shlex.quote(str(path.parent))}, and name {path.name}",
            )
        content = path.read_bytes()
        files[str(path)] = content
        document = _parsed(content)
        modules += _modules(document)
        todo += [Path(value) for key, value in _pairs(document) if key in ("experiment", "site")]
    return files | _own_files(modules, environ)


def _own_files(modules: Sequence[str], environ: Mapping[str, str]) -> dict[str, bytes]:
    below = [Path.cwd() / each for each in environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    search = list(dict.fromkeys(os.path.normpath(folder) for folder in (*below, Path.cwd())))
    own = find_modules(modules, search)
    found: dict[str, bytes] = {}
    for name, content in sorted({} if own is None else own.files.items()):
        path = name.partition("/")[2]
        if found.setdefault(path, content) != content:
            raise UserError(
                f"{path} is in two folders of PYTHONPATH, and both would be sent to one place", fix="rename one of them"
            )
    return found


def _override(text: str) -> dict[str, Any]:
    key, _, value = text.partition("=")
    return {key.rpartition(".")[2]: _parsed(value.encode())}


def _parsed(content: bytes) -> Any:  # noqa: ANN401  # whatever YAML holds
    try:
        return yaml.safe_load(content)
    except (yaml.YAMLError, UnicodeDecodeError):  # told when it is read for what it is
        return None


def _modules(document: Any) -> Iterator[str]:  # noqa: ANN401
    """The modules of `target: package.module.Class`, and of a task by dotted path, `package.module:KIND`."""
    for key, value in _pairs(document):
        if key == "target" or (key in ("task", "kind") and ":" in value):
            yield value.replace(":", ".").partition(".")[0]


def _pairs(document: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401
    """Every key with a text, at any depth."""
    if isinstance(document, Mapping):
        for key, value in document.items():
            if isinstance(value, str):
                yield str(key).rpartition(".")[2], value
            yield from _pairs(value)
    elif isinstance(document, list):
        for value in document:
            yield from _pairs(value)


@dataclass(frozen=True, slots=True)
class RemoteFolder:
    """The folder on the other machine, and how its graphmill is called."""

    folder: Source
    graphmill: str = "graphmill"
    ssh_config: Path | None = None

    def version(self) -> str:
        """What `graphmill --version` prints there. Raises `UserError` where it cannot be called."""
        done = self._call(f"{shlex.quote(self.graphmill)} --version")
        if done.returncode == _NOT_FOUND:
            raise UserError(
                f"{self.graphmill} is not found on {self.folder.login} (a command over ssh has the PATH of no login)",
                fix="name it: --remote-graphmill /path/to/venv/bin/graphmill",
            )
        if done.returncode:
            raise failure(self.folder, done.returncode, done.complaint, self.ssh_config)
        return (done.text.splitlines() or [""])[-1].strip()  # the host may greet first

    def compare(self, files: Mapping[str, bytes]) -> dict[str, State]:
        """What of the files is there already, and whether anyone has changed it since it was sent."""
        names = " ".join(shlex.quote(name) for name in files)
        look = f"cat -- {SENT_FILE} 2>/dev/null; echo; echo {SENT_FILE}; sha256sum -b -- {names} 2>/dev/null; true"
        done = self._call(f"cd -- {shlex.quote(self.folder.path)} 2>/dev/null || exit 0; {look}")
        if done.returncode:
            raise failure(self.folder, done.returncode, done.complaint, self.ssh_config)
        recorded, _, listed = done.text.partition(f"\n{SENT_FILE}\n")
        sent, here = _record(recorded), _sums(listed)
        return {name: _state(content, here.get(name), sent.get(name)) for name, content in files.items()}

    def send(self, files: Mapping[str, bytes]) -> None:
        """Send them, and the record of what was sent. Raises `UserError` where that fails."""
        need_rsync()
        made = self._call(f"mkdir -p -- {shlex.quote(self.folder.path)}")
        if made.returncode:
            raise failure(self.folder, made.returncode, made.complaint, self.ssh_config)
        with tempfile.TemporaryDirectory(prefix="graphmill-send-") as folder:
            for name, content in {**files, SENT_FILE: self._record_of(files)}.items():
                path = Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            command = ["rsync", "-r", "--checksum", "--protect-args", "-e", ssh_for_rsync(self.ssh_config)]
            done = answer_of([*command, "--", f"{folder}/", self.folder.rsync_name])
        if done.returncode:
            raise failure(self.folder, done.returncode, done.complaint, self.ssh_config)

    def run(self, words: Sequence[str]) -> int:
        """Call graphmill in the folder there, with these words; what it prints is printed. Returns its exit status."""
        command = " ".join(map(shlex.quote, [self.graphmill, *words]))
        there = f"cd -- {shlex.quote(self.folder.path)} && exec {command}"
        try:
            status = subprocess.run([*ssh_command(self.folder, self.ssh_config), there], check=False).returncode
        except KeyboardInterrupt:
            self._tell_unknown("interrupted")
            raise
        if status == _SSH_FAILED:
            self._tell_unknown("the connection was lost")
        return status

    def _tell_unknown(self, what: str) -> None:
        there = f"ssh {self.folder.login} {shlex.quote(f'cd {self.folder.path} && {self.graphmill} list')}"
        _log.warning(f"{what}: whether the job was submitted is not known here; `{there}` shows it")

    def _record_of(self, files: Mapping[str, bytes]) -> bytes:
        return (json.dumps({name: _sha256(content) for name, content in files.items()}, indent=1) + "\n").encode()

    def _call(self, command: str) -> Answer:
        need_rsync()
        return answer_of([*ssh_command(self.folder, self.ssh_config), command])


def refuse_changed_remotely(states: Mapping[str, State], remote: Source) -> None:
    """Raise a `UserError` if sending would overwrite what someone has changed there."""
    changed = [name for name, state in states.items() if state == "changed there"]
    if changed:
        raise UserError(
            f"{', '.join(changed)} in {remote.login}:{remote.path} was not sent from here as it is now, and would be"
            " overwritten",
            fix="fetch what you need of it, then give --overwrite; or name another folder",
        )


def _state(content: bytes, remote_digest: str | None, sent: str | None) -> State:
    if remote_digest is None:
        return "new"
    if remote_digest == _sha256(content):
        return "same"
    return "changed" if remote_digest == sent else "changed there"


def _record(text: str) -> dict[str, str]:
    try:
        found = parse_json(text[text.index("{") :])
    except ValueError:
        return {}
    return {str(name): str(checksum) for name, checksum in found.items()} if isinstance(found, dict) else {}


def _sums(text: str) -> dict[str, str]:
    """The lines of `sha256sum -b`: a checksum, a blank and a star, a name; a name with a newline is escaped."""
    lines = [line.partition(" *") for line in text.splitlines() if not line.startswith("\\")]
    return {name: checksum for checksum, star, name in lines if star}


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
