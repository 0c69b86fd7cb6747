"""Profiles of runs that nobody ran: phases as shares of a step."""

from graphmill.record.phases import DurationSpread, Operator, Phase, Profile, RankPhases

STEP_S = 0.1
BEHIND = "behind "  # before the name of a phase that another thread is in


def spread(mean: float, *, width: float = 0.1) -> DurationSpread:
    return DurationSpread(mean_s=mean, median_s=mean, low_s=mean * (1 - width), high_s=mean * (1 + width))


def rank_of(
    number: int = 0, *, operators=(), calls=10.0, width=0.1, busy=2.0, host_busy=2.0, **shares: float
) -> RankPhases:
    """`shares`: of a step; what they leave is the backward pass."""
    shares.setdefault("forward", 0.1)
    own = sum(share for name, share in shares.items() if not name.startswith(BEHIND))
    shares.setdefault("backward", max(0.0, 1 - own))
    phases = [
        Phase(
            name=name.removeprefix(BEHIND),
            background=name.startswith(BEHIND),
            per_step=spread(share * STEP_S, width=width),
        )
        for name, share in shares.items()
    ]
    return RankPhases(
        rank=number, host="h", num_steps=29, step=spread(STEP_S, width=width), phases=tuple(phases), num_traced=5,
        traced_step=spread(STEP_S), operators=tuple(operators), calls=calls, cores_busy=busy, host_cores_busy=host_busy,
        peaks_mib={}, trace="rank_0.pt.trace.json.gz", notes=(),
    )  # fmt: skip


def profile_of(*ranks: RankPhases, num_cores: int = 2, **plan) -> Profile:
    usual = {
        "run_id": "a", "task": "node_classification", "dataset.name": "toy", "dataset.checksum": "0", "hosts": 1,
        "ranks": len(ranks), "threads": 2, "sync.every": 1, "prefetch": 2, "device": "cpu", "batch_size": 64,
        "precision": "fp32", "steps_per_epoch": 10,
    }  # fmt: skip
    return Profile(
        run_id="a", plan={**usual, **plan}, kind="node_classification", seeds_are="nodes", num_cores=num_cores,
        versions={}, ranks=ranks, not_merged=(),
    )  # fmt: skip


def operator(name: str, share: float, phase: str = "backward") -> Operator:
    return Operator(name=name, phase=phase, device=False, calls=2, self_s=share * STEP_S)
