"""Exact, filtered ranking of links: ours against what users of PyG and OGB do; time, and peak of extra memory.

    python benchmarks/ranking.py [--queries 100000] [--candidates 100000] [--width 64] [--known 10] [--threads 2]
        [--chunks 32 128 1024] [--rounds 3] [--pyg-queries 200]

Every link is ranked among all candidates without the `--known` others that are left out for it; its measures are MRR
and Hits@10. What is timed is what was asked for: nothing is extrapolated.
  ours        ranks_among_all, mrr, hits_at
  OGB, c      torch.mm of c links with all candidates, what is left out set to -infinity, then the formulas of OGB's
              Evaluator (ranks among equals averaged); the fastest c counts
  PyG         `torch_geometric.nn.kge.DistMult.test`: an argsort for each link, nothing left out; of `--pyg-queries`
              links, against ours of as many
The memory of each is measured in a process of its own, which has the vectors already. The floor is the time of the
multiply-adds alone, at the rate of the faster of two products that stay in the cache, torch.mm and our own.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from graphmill import _native
from graphmill.tasks.link_prediction.ranking import LeftOut, hits_at, mrr, ranks_among_all
from harness import Spread, console, interleave, print_table, write_result
from origin import Origin

ALIKE = 1e-3  # of two MRRs: sums in another order change a few ranks
Judged = tuple[float, float]  # MRR, Hits@10


@dataclass(frozen=True, slots=True)
class Links:
    """Links whose answers are ranked by the dot product of two rows of a table."""

    table: torch.Tensor  # [candidates, width]
    sources: torch.Tensor  # [queries]
    answers: torch.Tensor  # [queries]
    indptr: torch.Tensor  # [queries + 1]: of what is left out, with the answer in it
    left_out: torch.Tensor

    @classmethod
    def made_up(cls, queries: int, candidates: int, width: int, known: int) -> "Links":
        draw = torch.Generator().manual_seed(0)
        ids = torch.randint(candidates, (queries, known + 1), generator=draw)
        answers = ids[:, 0].clone()
        ids = ids.sort(1).values
        is_first = torch.ones_like(ids, dtype=torch.bool)
        is_first[:, 1:] = ids[:, 1:] != ids[:, :-1]
        indptr = torch.cat([torch.zeros(1, dtype=torch.int64), is_first.sum(1).cumsum(0)])
        table = torch.randn(candidates, width, generator=draw)
        return cls(table, torch.randint(candidates, (queries,), generator=draw), answers, indptr, ids[is_first])

    def first(self, count: int) -> "Links":
        indptr = self.indptr[: count + 1]
        return Links(self.table, self.sources[:count], self.answers[:count], indptr, self.left_out[: int(indptr[-1])])


def ours(links: Links, threads: int) -> Judged:
    indptr, ids = links.indptr.numpy(), links.left_out.numpy()
    left_out = LeftOut(indptr[:-1], indptr[1:], ids.astype(np.int32))
    ranks = ranks_among_all(links.table[links.sources], links.answers, links.table, left_out, threads)
    return mrr(ranks), hits_at(ranks, 10)


def as_ogb(links: Links, chunk: int) -> Judged:
    ranks = torch.empty(len(links.sources))  # a list of results between the scores would break up the memory
    for begin in range(0, len(links.sources), chunk):
        answers = links.answers[begin : begin + chunk]
        scores = torch.mm(links.table[links.sources[begin : begin + chunk]], links.table.T)
        positive = scores.gather(1, answers[:, None])
        indptr = links.indptr[begin : begin + len(answers) + 1]
        rows = torch.repeat_interleave(torch.arange(len(answers)), indptr.diff())
        scores[rows, links.left_out[indptr[0] : indptr[-1]]] = -torch.inf
        optimistic = (scores > positive).sum(dim=1)
        pessimistic = (scores >= positive).sum(dim=1)
        ranks[begin : begin + chunk] = 0.5 * (optimistic + pessimistic) + 1
    return float((1.0 / ranks).mean()), float((ranks <= 10).float().mean())


def pyg_test(links: Links) -> Callable[[int], Judged]:
    from torch_geometric.nn.kge import DistMult

    num_nodes, width = links.table.shape
    model = DistMult(num_nodes, 1, width)
    with torch.no_grad():
        model.node_emb.weight.copy_(links.table)
        model.rel_emb.weight.fill_(1.0)

    def run(_: int) -> Judged:
        relations = torch.zeros_like(links.sources)
        _, found, hits = model.test(links.sources, relations, links.answers, batch_size=num_nodes, k=10, log=False)
        return found, hits

    return run


def multiply_adds_a_second(threads: int) -> float:
    """Of the faster of two products whose matrices stay in the cache."""
    a, w, out = torch.randn(1024, 512), torch.randn(512, 512), torch.empty(1024, 512)
    best = math.inf
    for _ in range(30):
        for product in (
            lambda: torch.mm(a, w, out=out),
            lambda: _native.linear(a, w, None, out, False, None, 0.0, threads),
        ):
            begin = time.perf_counter()
            product()
            best = min(best, time.perf_counter() - begin)
    return a.numel() * w.shape[1] / best


def status_bytes(name: str) -> int:
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith(name))


def extra_bytes(options: argparse.Namespace, contender: str) -> int:
    """Peak of what a contender needs besides the vectors, in this process."""
    links = problem(options)
    run = contenders(links, options)[contender]
    contenders(links.first(20), options)[contender](0)  # threads, and what libraries set up when first called
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = status_bytes("VmRSS")
    run(0)
    return status_bytes("VmHWM") - before


def extra_bytes_alone(contender: str) -> int:
    command = [sys.executable, __file__, *sys.argv[1:], "--memory-of", contender]
    return int(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def problem(options: argparse.Namespace) -> Links:
    return Links.made_up(options.queries, options.candidates, options.width, options.known)


def in_chunks(links: Links, chunk: int) -> Callable[[int], Judged]:
    return lambda _: as_ogb(links, chunk)


def contenders(links: Links, options: argparse.Namespace) -> dict[str, Callable[[int], Judged]]:
    forms: dict[str, Callable[[int], Judged]] = {"ours": lambda _: ours(links, options.threads)}
    for chunk in options.chunks:
        forms[f"OGB, {chunk}"] = in_chunks(links, chunk)
    return forms


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=100_000)
    parser.add_argument("--candidates", type=int, default=100_000)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--known", type=int, default=10, help="that are left out for each link, besides its answer")
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--chunks", type=int, nargs="+", default=[32, 128, 1024])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pyg-queries", type=int, default=200, help="links of PyG's own test; 0: leave it out")
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.memory_of:
        print(extra_bytes(options, options.memory_of))
        return
    origin = Origin.now()
    links = problem(options)
    forms = contenders(links, options)
    check(forms)
    rate = multiply_adds_a_second(options.threads)
    floor_s = options.queries * options.candidates * options.width / rate
    rounds = interleave(forms, rounds=options.rounds, warmup=0)  # the check has warmed all of them up
    memory = {name: extra_bytes_alone(name) for name in forms}
    peers = [name for name in forms if name != "ours"]
    fastest = min(peers, key=lambda name: rounds.spread(name).median)
    result: dict[str, Any] = {
        **{name: getattr(options, name) for name in ("queries", "candidates", "width", "known", "threads")},
        "seconds": {name: asdict(rounds.spread(name)) for name in forms},
        "ratio": {name: asdict(rounds.ratio(name, "ours")) for name in peers},
        "extra_bytes": memory,
        "fastest": fastest,
        "floor_s": floor_s,
        "multiply_adds_per_second": rate,
        "foreign_cores": rounds.foreign_cores,
        "pyg": against_pyg(links, options),
    }
    tell(result, rounds.spread("ours"))
    write_result("ranking", result, origin)


def check(forms: dict[str, Callable[[int], Judged]]) -> None:
    """All must find the same, or what is compared is not the same work."""
    found = {name: run(0) for name, run in forms.items()}
    for name, judged in found.items():
        if not np.allclose(judged, found["ours"], rtol=ALIKE, atol=ALIKE / 10):
            raise SystemExit(f"{name} finds {judged}, ours {found['ours']}")


def against_pyg(links: Links, options: argparse.Namespace) -> dict[str, Any] | None:
    count = min(options.pyg_queries, options.queries)
    if not count:
        return None
    some = links.first(count)
    forms = {"ours": lambda _: ours(some, options.threads), "PyG": pyg_test(some)}
    rounds = interleave(forms, rounds=options.rounds, warmup=1)
    return {
        "queries": count,
        "seconds": {name: asdict(rounds.spread(name)) for name in forms},
        "ratio": asdict(rounds.ratio("PyG", "ours")),
        "foreign_cores": rounds.foreign_cores,
    }


def tell(result: dict[str, Any], own: Spread) -> None:
    mib = {name: size / 2**20 for name, size in result["extra_bytes"].items()}
    rows = []
    for name, seconds in result["seconds"].items():
        of_peer = name in result["ratio"]
        ratio = str(Spread(**result["ratio"][name])) if of_peer else ""
        times_memory = f"{mib[name] / max(mib['ours'], 1e-9):.3g}" if of_peer else ""
        rows.append([name, str(Spread(**seconds)), ratio, f"{mib[name]:.1f}", times_memory])
    sizes = f"{result['queries']:,} links among {result['candidates']:,} candidates, {result['width']} floats"
    columns = ["", "s", "÷ ours", "extra MiB", "÷ ours"]
    print_table(f"ranking {sizes}, {result['threads']} threads", columns, rows)
    share = result["floor_s"] / own.median
    console.print(
        f"fastest peer: {result['fastest']}; floor {result['floor_s']:.3g} s, of which ours reaches {share:.0%}"
    )
    if result["pyg"]:
        pyg = result["pyg"]
        console.print(f"PyG's DistMult.test, {pyg['queries']} links: {Spread(**pyg['ratio'])} times ours")
    console.print(f"others used {result['foreign_cores']:.2g} cores")


if __name__ == "__main__":
    main()
