"""What a rank of a run that nobody trained would save after some steps: the same for the same steps."""

import torch

from graphmill.nn.weights import Weights
from graphmill.record.manifest import Best, Counters, Position, SavedStats
from graphmill.record.weights import Origin
from graphmill.train.checkpoint import ResumeState


def weights_at(steps_done: int) -> Weights:
    generator = torch.Generator().manual_seed(steps_done)
    model = {"layer.weight": torch.randn(6, 4, generator=generator), "layer.bias": torch.randn(6, generator=generator)}
    origin = Origin(
        run_id="run", task="toy", dataset="toy", step=steps_done, epoch=1, plan_hash="planhash", measures={"f1": 0.5}
    )
    return Weights.of(model, origin)


def state_of(steps_done: int, rank: int = 0, best: int | None = None) -> ResumeState:
    own = {"optimizer.step": torch.tensor(float(steps_done)), "optimizer.exp_avg": torch.full((30,), float(rank))}
    counters = Counters(num_syncs=steps_done, payload_bytes=120 * steps_done)
    position = Position(
        epoch=1,
        step=steps_done,
        steps_done=steps_done,
        books=SavedStats(loss_sum=(1 + rank) / 3, epoch_s=0.1, counters=counters, before_epoch=Counters(), spent_s={}),
        best=None
        if best is None
        else Best(step=best, epoch=1, values={"micro_f1": 0.1 + 0.2, "macro_f1": 0.5}, loss=1.0),
        patience=None,
    )
    return ResumeState(own, position)
