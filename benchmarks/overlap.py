"""Backward and the exchange of gradients, in pieces that overlap and in one that does not: two ranks on two hosts.

    python benchmarks/overlap.py [--rates none 1gbit 200mbit] [--layers 8] [--width 1024] [--rows 512] [--rounds 9]

The hosts are network namespaces with a link of each rate (tc's tbf), a core each; the layers are dense, with ReLU
between. Ways take turns, a step each. Prints and writes nothing. Needs root and two cores.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from graphmill.sync.exchange import PIECE_BYTES, GradientExchange
from graphmill.sync.group import Group
from graphmill.sync.replica import Replica
from harness import Spread, print_table
from parts_training import NETWORK, namespaces

PORT, WARM_UP = 29613, 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", nargs="+", default=["none", "1gbit", "200mbit"], help="as tc writes them")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    if "RANK" in os.environ:
        rank(options)
        return
    mib = options.layers * options.width * (options.width + 1) * 4 / 2**20
    print(f"{mib:.0f} MiB of gradients, pieces of {PIECE_BYTES >> 20} MiB")
    for rate in options.rates:
        with namespaces() as names:
            for name in names[:2] if rate != "none" else ():
                limit = ["tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", rate]
                subprocess.run(["ip", "netns", "exec", name, *limit, "burst", "512kb", "latency", "100ms"], check=True)
            print(f"link: {rate}", flush=True)
            started = [started_rank(number, name) for number, name in enumerate(names[:2])]
            ended = [each.wait(timeout=600) for each in started]
            if any(ended):
                raise SystemExit("a rank failed")


def started_rank(number: int, name: str) -> subprocess.Popen[bytes]:
    environ = {**os.environ, "RANK": str(number), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0"}
    command = ["taskset", "-c", str(number), "ip", "netns", "exec", name, sys.executable, *sys.argv]
    return subprocess.Popen(command, env=environ, cwd=Path.cwd())


def rank(options: argparse.Namespace) -> None:
    """Take turns between the ways; rank 0 prints."""
    number = int(os.environ["RANK"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://{NETWORK}.1:{PORT}", rank=number, world_size=2)
    ways = {"one piece": learner(options, 2**62, number), "in pieces": learner(options, PIECE_BYTES, number)}
    x = torch.randn(options.rows, options.width)
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(-WARM_UP, options.rounds):
        for way, (model, exchange) in ways.items():
            dist.barrier()
            began = time.perf_counter()
            loss = model(x).sum()
            exchange.begin(2.0)
            loss.backward()
            exchange.finish(2.0)
            exchange.replica.grads.zero_()
            if turn >= 0:
                seconds[way].append(time.perf_counter() - began)
    if number == 0:
        ratio = Spread.of([one / many for one, many in zip(seconds["one piece"], seconds["in pieces"], strict=True)])
        rows = [[way, f"{1e3 * statistics.median(of):.0f}"] for way, of in seconds.items()]
        print_table(f"a step, ms; the second way is {ratio} times as fast", ["gradients", "ms"], rows)
    dist.barrier()
    dist.destroy_process_group()


def learner(options: argparse.Namespace, piece_bytes: int, number: int) -> tuple[nn.Module, GradientExchange]:
    layers = [layer for _ in range(options.layers) for layer in (nn.Linear(options.width, options.width), nn.ReLU())]
    model = nn.Sequential(*layers)
    group = Group(number, 2, torch.device("cpu"))
    return model, GradientExchange(Replica(model), group, torch.float32, piece_bytes=piece_bytes)


if __name__ == "__main__":
    main()
