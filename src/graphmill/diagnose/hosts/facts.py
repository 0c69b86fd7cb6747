"""What a job on several hosts found out about each of them (`graphmill doctor --hosts N`), as documents."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

_FROZEN = ConfigDict(frozen=True, extra="forbid", defer_build=True)

Number = Annotated[float, Field(allow_inf_nan=False)]


class Gpu(BaseModel):
    """A GPU, as torch sees it."""

    model_config = _FROZEN

    name: str
    capability: str = Field(description="its compute capability, such as 8.0")
    is_supported: bool = Field(description="whether this torch has code for it")


class Folder(BaseModel):
    """A folder of a host."""

    model_config = _FROZEN

    path: str
    file_system: str = Field(description="its type, such as xfs, nfs4, lustre, tmpfs")
    free_bytes: int
    write_bytes_per_s: Number | None = Field(None, description="of a file, flushed to the disk; null: not tried")
    error: str = Field("", description="why it cannot be used; empty: it can")


class Link(BaseModel):
    """A TCP connection that this host made to another one."""

    model_config = _FROZEN

    to: str
    error: str = Field("", description="why there is none; empty: there is")
    round_trip_s: Number | None = Field(None, description="of 64 bytes, the median")
    bytes_per_s: Number | None = Field(None, description="from this host to the other")
    clock_ahead_s: Number | None = Field(None, description="the other's clock less this one's")
    clock_error_s: Number | None = Field(None, description="by which `clock_ahead_s` may be wrong: half a round trip")


class AllReduce(BaseModel):
    """A sum over all hosts."""

    model_config = _FROZEN

    backend: str
    num_bytes: int
    seconds: Number = Field(description="the median")


class HostFacts(BaseModel):
    """What one host says of itself and of the others: host_<rank>.json."""

    model_config = _FROZEN

    rank: int
    host: str
    code: str = Field(description="checksum of graphmill's own files")
    torch: str
    python: str
    num_cores: int
    memory_bytes: int
    gpus: tuple[Gpu, ...] = ()
    architectures: tuple[str, ...] = Field((), description="torch.cuda.get_arch_list()")
    temporary: Folder = Field(description="$TMPDIR, else /tmp")
    shared: Folder = Field(description="where the run folders are")
    seen_after_s: Number | None = Field(None, description="until it saw another host's file in `shared`; null: never")
    unknown_names: tuple[str, ...] = Field((), description="hosts of the job whose names it cannot resolve")
    error: str = Field("", description="why it could not meet the others; empty: it did")
    absent: tuple[str, ...] = Field((), description="hosts that it waited for in vain")
    address: str = Field("", description="where it was reached by the others")
    links: tuple[Link, ...] = ()
    all_reduces: tuple[AllReduce, ...] = ()


class HostReport(BaseModel):
    """All of them: hosts.json."""

    model_config = _FROZEN

    job_id: str
    expected: tuple[str, ...] = Field(description="the hosts of the job")
    hosts: tuple[HostFacts, ...] = Field(description="of those that answered")
    problem: str = Field("", description="what the job said, if it did not end well")
