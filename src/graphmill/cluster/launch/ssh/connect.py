"""Logging in to hosts: the user's keys, agent, ssh config and known hosts; what is missing is reported with its fix.

Nothing is asked for and nothing is stored: no password, no passphrase, no new host key.
"""

import asyncio
import shlex
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, cast

import asyncssh

from graphmill.base.errors import UserError
from graphmill.cluster.launch.ssh.hosts import SshHost

_LOGIN_S: Final = 20.0
_ALIVE_S: Final = 5  # between two heartbeats of ssh itself: for the time before the agent sends its own
_MOST_MISSED: Final = 4
_SSH_PORT: Final = 22
_KNOWN_HOSTS: Final = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")
_KNOWN_HOSTS_OF_ALL: Final = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")


async def connect(host: SshHost, config: Path | None) -> asyncssh.SSHClientConnection:
    """Log in. `config`: in place of ~/.ssh/config. A `UserError` says why it failed, and what to type."""
    options = _options(host, config)
    address, port = options.host or host.address, options.port
    where = f"{host.name} ({address})" if address != host.name else host.name
    where += f", port {port}" if port != _SSH_PORT else ""
    known = _known_hosts(options)
    try:
        login = asyncssh.connect(address, port, options=options, known_hosts=known)
        return await asyncio.wait_for(login, _LOGIN_S)
    except asyncssh.HostKeyNotVerifiable as error:
        raise _unverified(host, options, where, str(error)) from None
    except asyncssh.PermissionDenied:
        raise UserError(
            f"{options.username} on {where}: permission denied (none of your SSH keys was accepted)",
            fix=f"`ssh-copy-id {_login(options, port)}`; a key with a passphrase must be in the agent: `ssh-add`",
        ) from None
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError) as error:
        raise UserError(
            f"a key for {where} cannot be used: {error}",
            fix="`ssh-add` it, so that the agent holds it: passphrases are not asked for here",
        ) from None
    except (OSError, TimeoutError, asyncssh.Error) as error:
        reason = f"no answer within {_LOGIN_S:.0f} s" if isinstance(error, TimeoutError) else _describe(error)
        raise UserError(
            f"{where} cannot be reached: {reason}", fix=f"see what `ssh {_login(options, port)}` says"
        ) from None


def _options(host: SshHost, config: Path | None) -> asyncssh.SSHClientConnectionOptions:
    if config is not None and not config.is_file():
        raise UserError(f"--ssh-config {config} is not a file", fix="name an ssh config, or leave it out")
    given: dict[str, object] = {"config": [str(config)]} if config is not None else {}
    if host.user is not None:
        given["username"] = host.user
    if host.port is not None:
        given["port"] = host.port
    try:
        return asyncssh.SSHClientConnectionOptions(
            host=host.address,
            password_auth=False,
            kbdint_auth=False,
            keepalive_interval=_ALIVE_S,
            keepalive_count_max=_MOST_MISSED,
            connect_timeout=_LOGIN_S,
            **given,
        )
    except (asyncssh.Error, OSError, ValueError) as error:
        raise UserError(
            f"{host.name}: the ssh config cannot be used: {error}", fix="correct it, or give --ssh-config"
        ) from None


def _unverified(host: SshHost, options: asyncssh.SSHClientConnectionOptions, where: str, reason: str) -> UserError:
    """An unknown host key, or one that differs from the known one."""
    address, port = options.host or host.address, options.port
    name = options.host_key_alias or address
    files = _known_hosts_files(options) or [Path(_KNOWN_HOSTS[0]).expanduser()]
    file = shlex.quote(str(files[0]))
    entry = name if port == 22 or options.host_key_alias else f"[{name}]:{port}"
    scan = f"ssh-keyscan{'' if port == 22 else f' -p {port}'} {shlex.quote(address)}"
    if options.host_key_alias:
        scan += f" | sed {shlex.quote(f's/^[^ ]*/{entry}/')}"
    if _known_hosts(options).match(name, "", None if port == 22 else port)[0]:
        return UserError(
            f"{where} shows another host key than the one in {files[0]}: it was reinstalled, or"
            f" the connection is intercepted ({reason})",
            fix=f"ask who runs it; if the key is right: `ssh-keygen -R {shlex.quote(entry)} -f {file}`,"
            f" then `{scan} >> {file}`",
        )
    return UserError(
        f"the host key of {where} is not known, so the host cannot be verified",
        fix=f"compare its fingerprint (`{scan} | ssh-keygen -lf -`) with what its owner says,"
        f" then accept it: `{scan} >> {file}`",
    )


def _known_hosts(options: asyncssh.SSHClientConnectionOptions) -> asyncssh.SSHKnownHosts:
    """The known host keys; none if there is no file.

    Never left to asyncssh, which takes `UserKnownHostsFile none` to mean that any key is accepted.
    """
    texts = []
    for file in (*_known_hosts_files(options), *_set_in(options, "GlobalKnownHostsFile", _KNOWN_HOSTS_OF_ALL)):
        with suppress(OSError):
            texts.append(file.read_text(encoding="utf-8", errors="replace"))
    try:
        return asyncssh.import_known_hosts("\n".join(texts))
    except ValueError as error:
        raise UserError(f"the known hosts cannot be read: {error}", fix="correct ~/.ssh/known_hosts") from None


def _known_hosts_files(options: asyncssh.SSHClientConnectionOptions) -> list[Path]:
    return _set_in(options, "UserKnownHostsFile", _KNOWN_HOSTS)


def _set_in(options: asyncssh.SSHClientConnectionOptions, key: str, otherwise: tuple[str, ...]) -> list[Path]:
    told = cast(Sequence[str], options.config.get(key, otherwise))
    return [Path(file).expanduser() for file in told]


def _login(options: asyncssh.SSHClientConnectionOptions, port: int) -> str:
    at_port = "" if port == 22 else f"-p {port} "
    return f"{at_port}{shlex.quote(f'{options.username}@{options.host}')}"


def _describe(error: Exception) -> str:
    return getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error) or type(error).__name__
