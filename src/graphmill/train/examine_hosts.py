"""What `graphmill doctor --hosts N` runs on each host: `python -m graphmill.train.examine_hosts FOLDER HOST,HOST…`.

Each host looks at itself, meets the others as ranks do, and writes `host_<rank>.json`. What goes wrong is part of it.
"""

import argparse
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist

from graphmill.base import exits
from graphmill.base.errors import UserError
from graphmill.base.files import write_text
from graphmill.base.messages import show_messages
from graphmill.diagnose.job_hosts import JOB_SCRIPT, AllReduce, ClockOffset, HostFacts, HostFolder, HostGpu
from graphmill.runtime.machine import free_disk_bytes, host_name, machine_info
from graphmill.runtime.rank import Rank, current_rank
from graphmill.runtime.roots import file_system
from graphmill.train.device import is_built_for
from graphmill.train.peers import choose_interface, exchange_peer_info
from graphmill.train.rendezvous import join_group
from graphmill.train.store import PortBusyError, open_words
from graphmill.train.words import PeerTimeout

_MEET_WITHIN_S: Final = 90.0  # programs start late from a shared file system that is busy
_CONNECT_WITHIN_S: Final = 30.0
_SUMS: Final = {4 << 10: 50, 16 << 20: 5}  # bytes, of which the time is latency and bandwidth; how often
_CLOCK_ROUNDS: Final = 10


def main(words: Sequence[str] | None = None) -> int:
    """Look at this host, and write what was seen."""
    parser = argparse.ArgumentParser(prog="python -m graphmill.train.examine_hosts", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("hosts", help="of the job, in its order")
    options = parser.parse_args(words)
    show_messages()
    rank, hosts = current_rank(os.environ), options.hosts.split(",")
    facts = facts_here(rank, hosts, options.folder)
    if rank.world_size > 1:
        try:
            facts = facts.model_copy(update=_with_the_others(rank, f"doctor of {hosts[0]}"))
        except (OSError, RuntimeError, UserError, PortBusyError) as error:  # torch's are RuntimeErrors
            line = str(error).strip().split("\n")[0]  # torch adds its C++ stack
            facts = facts.model_copy(update={"error": line or type(error).__name__})
    try:
        write_text(options.folder / f"host_{rank.rank}.json", facts.model_dump_json(indent=2) + "\n")
    except OSError as error:
        sys.stderr.write(f"error: {facts.host} cannot write to {options.folder}: {error.strerror}\n")
    return exits.DONE


def facts_here(rank: Rank, hosts: Sequence[str], folder: Path) -> HostFacts:
    """What this host knows of itself."""
    machine = machine_info(os.environ)
    return HostFacts(
        rank=rank.rank,
        host=host_name(os.environ),
        torch=torch.__version__,
        num_cores=machine.num_cores,
        memory_bytes=machine.memory_bytes,
        gpus=tuple(_gpu(number) for number in range(torch.cuda.device_count())),
        architectures=tuple(torch.cuda.get_arch_list()),
        temporary=look_at(Path(tempfile.gettempdir())),
        sees_files=(folder / JOB_SCRIPT).exists(),
        unknown_names=tuple(name for name in hosts if not _is_known(name)),
    )


def look_at(path: Path) -> HostFolder:
    """The folder, and whether a file can be written there. An error is part of the answer."""
    try:
        with tempfile.TemporaryFile(dir=path, buffering=0) as file:
            file.write(bytes(1 << 20))
            os.fsync(file.fileno())
        free, error = free_disk_bytes(path), ""
    except OSError as problem:
        free, error = 0, f"{problem.strerror or problem}"
    return HostFolder(path=str(path), file_system=file_system(path), free_bytes=free, error=error)


def _gpu(number: int) -> HostGpu:
    capability = torch.cuda.get_device_capability(number)
    is_supported = is_built_for(capability, torch.cuda.get_arch_list())
    text = f"{capability[0]}.{capability[1]}"
    return HostGpu(name=torch.cuda.get_device_name(number), capability=text, is_supported=is_supported)


def _is_known(name: str) -> bool:
    try:
        socket.getaddrinfo(name, None)
    except socket.gaierror:
        return False
    return True


def _with_the_others(rank: Rank, run: str) -> dict[str, Any]:
    """Meet as the ranks of a run do, which refuses different programs; then sums and clocks, fields of `HostFacts`."""
    patience = PeerTimeout(_MEET_WITHIN_S)
    words = open_words(rank, os.environ, run, patience)
    interface = choose_interface(exchange_peer_info(words, rank, os.environ, patience.renewed()), rank, os.environ)
    if interface is not None:
        os.environ["GLOO_SOCKET_IFNAME"] = interface
    connect = PeerTimeout(_CONNECT_WITHIN_S)
    join_group("gloo", words.store, rank.rank, rank.world_size, words=words, process=rank, patience=connect)
    words.about("joined").put(str(rank.rank), "")
    try:
        sums = tuple(AllReduce(num_bytes=size, seconds=_sum_time(size, times)) for size, times in _SUMS.items())
        return {"all_reduces": sums, "clock": _clock()}
    finally:
        dist.destroy_process_group()


def _sum_time(num_bytes: int, times: int) -> float:
    """Median seconds of a sum, the slowest host's: all agree on it."""
    values, seconds = torch.ones(num_bytes // 4), []
    for _ in range(times + 1):  # the first one connects
        values.fill_(1.0)
        begin = time.perf_counter()
        dist.all_reduce(values)
        seconds.append(time.perf_counter() - begin)
    median = torch.tensor([statistics.median(seconds[1:])], dtype=torch.float64)
    dist.all_reduce(median, op=dist.ReduceOp.MAX)
    return float(median)


def _clock() -> ClockOffset:
    """This host's clock beside the first one's: when the last host comes to a barrier, every host waits in it."""
    waits = torch.empty(_CLOCK_ROUNDS, 2, dtype=torch.float64)
    for wait in waits:
        wait[0] = time.time()
        dist.barrier()
        wait[1] = time.time()
    first = waits.clone()
    dist.broadcast(first, 0)
    low, high = float((waits[:, 0] - first[:, 1]).max()), float((waits[:, 1] - first[:, 0]).min())
    return ClockOffset(ahead_s=(low + high) / 2, error_s=abs(high - low) / 2)


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    os._exit(status)  # a thread of torch's may still wait for a host that cannot be reached
