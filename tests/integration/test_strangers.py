"""A process that knows nothing of a run, and reaches its host: it reads nothing that matters, and ends nothing."""

import json
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from torch.distributed import TCPStore
from waiting import wait_until

from graphmill.record.events import Sync, events_in
from graphmill.record.run_folder import RunFolder

pytestmark = pytest.mark.distributed

LISTENS = "0A"  # a state of /proc/net/tcp
LOOPBACK = {"0100007F", "00000000000000000000000001000000"}


def listening(pid: int) -> dict[int, str]:
    """Ports at which a process listens, and the addresses, as the kernel writes them."""
    links = [link.readlink().name for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()]
    sockets = {name.removeprefix("socket:[").removesuffix("]") for name in links if name.startswith("socket:[")}
    found = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *rest = line.split()
            if state == LISTENS and rest[5] in sockets:
                address, port = local.split(":")
                found[int(port, 16)] = address
    return found


@pytest.fixture
def run(zygote, planned, tmp_path):
    """A run of two ranks that has begun to train: its folder, the ranks' process ids, the port of their store."""
    folder = RunFolder.create(planned("run", ranks=2, epochs=2000, evaluate_every_epochs=0, hang_timeout_s=8), tmp_path)
    pids = zygote.start(folder, resume=False)
    wait_until(lambda: syncs(folder), "a sync")
    yield folder, pids, zygote.at_port
    if zygote.running:
        zygote.kill(pids)
        zygote.wait(pids)


def syncs(folder: RunFolder) -> int:
    path = folder.events_path(0)
    return len(events_in(path, Sync)) if path.exists() else 0


def test_ranks_on_one_host_listen_on_its_loopback_alone(run):
    _, pids, port = run
    found = [listening(pid) for pid in pids]
    assert port in found[0], "the store's"
    assert len(found[1]) >= 1, "gloo's"
    assert {address for ports in found for address in ports.values()} <= LOOPBACK
    own = subprocess.run(["hostname", "--all-ip-addresses"], capture_output=True, text=True, check=True).stdout.split()
    for address in own:
        with pytest.raises(OSError, match="refused"):
            socket.create_connection((address, port), timeout=10)


def test_what_a_stranger_writes_into_the_store_ends_no_run(zygote, run):
    """Not under the names that graphmill's code has, nor under those that the store lists."""
    folder, pids, port = run
    store = TCPStore("127.0.0.1", port, is_master=False)
    keys = store.list_keys()
    store.set("graphmill.watchdog/what is lost", "a stranger says so")
    prefix = next(key for key in keys if key.endswith("/graphmill.watchdog/beat of 1")).split("/")[0]
    for key in ("graphmill.watchdog/what is lost", "graphmill.gone/first", "graphmill.peers/1"):
        store.set(f"{prefix}/{key}", "0" * 32 + "a stranger says so")
    seen = syncs(folder)
    beat = f"{prefix}/graphmill.watchdog/beat of 1"
    for _ in range(
        4
    ):  # rank 1 looks behind each of its heartbeats for what is lost, and judges what it found once more
        before = store.get(beat)
        wait_until(lambda before=before: store.get(beat) != before, "a heartbeat of rank 1")
    wait_until(lambda: syncs(folder) > seen, "the run to go on")
    zygote.kill(pids, signal.SIGTERM)
    assert zygote.wait(pids) == [75, 75], zygote.said(folder)


def test_the_token_is_told_nobody(zygote, run):
    folder, _, port = run
    store = TCPStore("127.0.0.1", port, is_master=False)
    told = [*store.list_keys(), *(store.get(key).decode(errors="replace") for key in store.list_keys())]
    assert not any(zygote.token in text for text in told)
    written = [path for path in folder.path.rglob("*") if path.is_file()]
    assert not any(zygote.token.encode() in path.read_bytes() for path in written), json.dumps(list(map(str, written)))
