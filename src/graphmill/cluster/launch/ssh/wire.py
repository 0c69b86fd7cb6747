"""The protocol between the launcher and the agents on the hosts: one JSON object per line, both ways."""

from typing import Annotated, Final, Literal

from pydantic import Field, TypeAdapter, ValidationError

from graphmill.config.frozen import Spec

BEAT_S: Final = 1.0  # between two heartbeats
CANNOT_LISTEN: Final = "rank 0 cannot listen on port"
SILENCE_S: Final = 15.0  # without one, the other end counts as lost; TCP may need 10 s to get over a cut of 5 s


class Beat(Spec):
    """A heartbeat."""

    kind: Literal["beat"] = "beat"


class DescribeRequest(Spec):
    """Describe yourself. `resolve`: an address to resolve as well."""

    kind: Literal["look"] = "look"
    resolve: str | None = None


class CheckRequest(Spec):
    """Can you train this? Nothing is left behind."""

    kind: Literal["check"] = "check"
    folder: str = Field(description="where the launcher wrote the file `token`, which holds `text`")
    token: str
    text: str
    dataset: str = Field(description="the prepared dataset's folder")
    checksum: str
    master: str = Field(description="address of the host that rank 0 runs on")
    reserve_port: bool = Field(description="whether rank 0 runs here")
    port: int | None = Field(None, description="that rank 0 is to listen on; null: any free one")
    interface: str | None = Field(description="null: find the one that leads to `master`")


class StartRequest(Spec):
    """Start these processes."""

    kind: Literal["start"] = "start"
    run: str = Field(description="the run folder")
    processes: tuple[int, ...] = Field(description="their numbers: ranks, and with roles samplers, too")
    stems: tuple[str, ...] = Field(description="of the names of their logs, such as rank_0")
    num_processes: int = Field(description="over all hosts")
    threads: int = Field(description="of each process")
    resume: bool
    master: str
    port: int
    interface: str
    token: str = Field(description="of the attempt: what its ranks know, and strangers do not")
    trusted: str = Field("", description="the code that the person named, as the environment of a process says it")
    program: tuple[str, ...] = Field((), description="in place of the worker, for tests")


class Signal(Spec):
    """Send a signal to every rank here."""

    kind: Literal["signal"] = "signal"
    number: int


class Kill(Spec):
    """End every rank here, at once."""

    kind: Literal["kill"] = "kill"


class HostInfo(Spec):
    """What a host is."""

    kind: Literal["facts"] = "facts"
    hostname: str
    time: float = Field(description="Unix time of the host's clock, s")
    version: str
    code: str = Field(description="checksum of graphmill's files")
    commit: str | None
    dirty: bool | None
    python: str
    torch: str | None
    executable: str
    num_cores: int
    num_gpus: int
    resolved: str | None = Field(description="the address that was asked for, as a number; null: it does not resolve")


class Checked(Spec):
    """What a host found: problems in words, and what it will use."""

    kind: Literal["checked"] = "checked"
    shares_folder: bool
    problems: tuple[str, ...]
    interface: str
    port: int | None


class Started(Spec):
    """Message that the ranks were started."""

    kind: Literal["started"] = "started"


class Line(Spec):
    """A line that a rank printed."""

    kind: Literal["line"] = "line"
    rank: int
    text: str


class Ended(Spec):
    """A rank ended; all of its lines were sent before."""

    kind: Literal["ended"] = "ended"
    rank: int
    code: int = Field(description="negative: died of that signal")
    time: float = Field(description="Unix time of the host's clock, s")


class Refused(Spec):
    """The host cannot do what it was asked to."""

    kind: Literal["refused"] = "refused"
    message: str
    fix: str


Request = Beat | DescribeRequest | CheckRequest | StartRequest | Signal | Kill
Message = Beat | HostInfo | Checked | Started | Line | Ended | Refused

_REQUESTS: Final[TypeAdapter[Request]] = TypeAdapter(Annotated[Request, Field(discriminator="kind")])
_MESSAGES: Final[TypeAdapter[Message]] = TypeAdapter(Annotated[Message, Field(discriminator="kind")])


def encode(message: Request | Message) -> bytes:
    """Encode a message as one line."""
    return message.model_dump_json().encode() + b"\n"


def decode_request(line: bytes) -> Request:
    """A line of the launcher's. `ValueError` if it is not one."""
    return _REQUESTS.validate_json(line)


def decode_message(line: bytes) -> Message | None:
    """A line of an agent's, or None if something else printed it: a login script, for example."""
    try:
        return _MESSAGES.validate_json(line)
    except ValidationError:
        return None
