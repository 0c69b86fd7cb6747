"""Which network interface leads where, and which port is free."""

import ipaddress
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from graphmill.base.errors import UserError

FIRST_PORT: Final = 20000
NUM_PORTS: Final = 12000  # below the range from which Linux takes the ports of connections
_STRIDE: Final = 1009  # prime: retries of neighbouring jobs do not collide repeatedly


def interface_towards(address: str) -> str:
    """The name of the interface whose address this host shows to `address`; `lo` for an address of its own.

    gloo and NCCL guess by the host's name, which on many systems is that of 127.0.1.1: other hosts then cannot connect.
    """
    import psutil

    own = address_towards(address)
    for name, addresses in psutil.net_if_addrs().items():  # type: ignore[no-untyped-call]  # psutil ships no types
        if any(entry.address.split("%")[0] == own for entry in addresses):
            return str(name)
    raise UserError(
        f"no network interface of {socket.gethostname()} has the address {own}, which leads to {address}",
        fix="name the interface in slurm.interface",
    )


def refuse_unknown_interface(names: str) -> None:
    """Raise a `UserError` if this host has none of the interfaces (separated by commas, as gloo takes them)."""
    import psutil

    here = list(psutil.net_if_addrs())  # type: ignore[no-untyped-call]  # psutil ships no types
    if not set(names.split(",")) & set(here):
        raise UserError(
            f"{socket.gethostname()} has no network interface {names}; it has {', '.join(here)}",
            fix="name one that every host has in slurm.interface, or leave it out: it is found by the route",
        )


def address_of_interface(names: str) -> str:
    """The address of the first of these interfaces (separated by commas) that this host has.

    Raises `UserError` if it has none of them.
    """
    import psutil

    refuse_unknown_interface(names)
    here = psutil.net_if_addrs()  # type: ignore[no-untyped-call]  # psutil ships no types
    addresses = [entry for name in names.split(",") for entry in here.get(name, ())]
    for family in (socket.AF_INET, socket.AF_INET6):
        for entry in addresses:
            if entry.family == family:
                return str(entry.address)
    raise UserError(
        f"network interface {names} of {socket.gethostname()} has no address", fix="name another in slurm.interface"
    )


def address_towards(address: str) -> str:
    """The address of this host that `address` would see. Nothing is sent: the system only picks the route."""
    try:
        family, _, _, _, target = socket.getaddrinfo(address, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as asked:
            asked.connect(target)
            return str(asked.getsockname()[0])
    except OSError as error:
        raise UserError(
            f"{socket.gethostname()} finds no way to {address}: {error.strerror or error}",
            fix="see whether the host's name resolves there: `getent hosts NAME`",
        ) from None


def loopback() -> str:
    """The address at which processes of this host find each other and no other host does.

    Raises `UserError` if there is none.
    """
    for address in ("127.0.0.1", "::1"):
        with suppress(OSError), socket.socket(family_of(address), socket.SOCK_DGRAM) as asked:
            asked.connect((address, 9))  # sends nothing; an interface that is down leads nowhere
            return address
    raise UserError(
        f"{socket.gethostname()} has no loopback address, neither 127.0.0.1 nor ::1, by which ranks find each other",
        fix="`ip link set lo up`, as root, or train with --ranks 1",
    )


def is_own(address: str) -> bool:
    """Whether an address is one of this host's."""
    try:
        with socket.socket(family_of(address), socket.SOCK_STREAM) as trial:
            trial.bind((address, 0))
    except OSError:
        return False
    return True


def family_of(address: str) -> socket.AddressFamily:
    """IPv6 has colons."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def addresses_of(name: str) -> list[str]:
    """Addresses that a name resolves to here; none if it does not."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def listening_address(name: str, *, is_alone: bool, others: Sequence[str], interface: str | None) -> str:
    """The address of this host where others come that look for it as `name`: to listen there, and nowhere else.

    `is_alone`: all of them are on this host. A host's own name is often that of 127.0.1.1 on itself, where no other
    host can connect: then it is the address that the first of `others` sees, else that of `interface`.
    """
    own = [address for address in addresses_of(name) if is_own(address)]
    own = [address for address in own if is_alone or not _is_loopback(address)]
    if own:
        return min(own, key=lambda address: is_alone and not _is_loopback(address))
    if not is_alone and others and not _is_loopback(towards := address_towards(others[0])):
        return towards
    if not is_alone and interface:
        return address_of_interface(interface)
    found = ", ".join(addresses_of(name)) or "nothing"
    raise UserError(
        f"rank 0 cannot listen at {name}: that is {found} on {socket.gethostname()}, no address of its own that"
        f" {'its ranks' if is_alone else 'other hosts'} can reach",
        fix="set MASTER_ADDR to an address of the host of rank 0, or name the interface in GLOO_SOCKET_IFNAME",
    )


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.split("%", maxsplit=1)[0]).is_loopback


def candidate_ports(key: int) -> Iterator[int]:
    """Ports to try, in an order that depends on `key` alone (a job id): different jobs begin at different ports."""
    for trial in range(NUM_PORTS):
        yield FIRST_PORT + (key + trial * _STRIDE) % NUM_PORTS


def is_free(port: int, host: str = "") -> bool:
    """Whether no process listens on this port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
        try:
            trial.bind((host, port))
        except OSError:
            return False
    return True
