"""The loop: what one rank does from its first step to its outcome."""

import math
import time
from dataclasses import asdict, dataclass, field

import torch
from torch import Tensor
from torch.optim import Optimizer

from graphmill.record.events import EventWriter
from graphmill.record.metrics import Cell, read_metrics, write_metrics
from graphmill.record.run_folder import RunFolder, Status
from graphmill.runtime.stop import StopRequest
from graphmill.spec.plan import Plan
from graphmill.sync.group import Group
from graphmill.sync.replica import Replica
from graphmill.sync.schemes import Step, SyncScheme
from graphmill.tasks.node_classification.metrics import Measures
from graphmill.tasks.node_classification.task import NodeClassification
from graphmill.train.checkpoint import CheckpointStore, Position, State
from graphmill.train.ledger import Ledger, evaluation_cells
from graphmill.train.progress import Progress


@dataclass(frozen=True, slots=True)
class Best:
    """The best evaluation on the validation split so far."""

    step: int  # steps_done of its checkpoint
    epoch: int
    micro_f1: float
    macro_f1: float


@dataclass(slots=True)
class Training:
    """One rank's training, from a plan; `position` is where the next step begins."""

    plan: Plan
    folder: RunFolder
    group: Group
    task: NodeClassification
    replica: Replica
    optimizer: Optimizer
    scheme: SyncScheme
    checkpoints: CheckpointStore
    ledger: Ledger
    stop: StopRequest
    events: EventWriter
    progress: Progress
    epoch: int = 0
    step: int = 0  # within the epoch
    steps_done: int = 0
    best: Best | None = None
    rows: list[dict[str, Cell]] = field(default_factory=list)
    saved_at: int = -1  # steps_done of the latest checkpoint

    def run(self) -> Status:
        """Train to the end of the plan, or until the ranks agree to stop."""
        self.ledger.begin_attempt()
        while self.epoch < self.plan.epochs:
            if not self._train_epoch():
                self._save()
                return "out_of_time"
            self._finish_epoch()
        return "done"

    def _train_epoch(self) -> bool:
        """What is left of the epoch. False: the ranks agreed to stop before its end."""
        self.ledger.begin_epoch()
        waiting_since = time.perf_counter()
        for batch in self.task.batches(self.epoch, self.step):
            if self.steps_done == self.plan.steps_per_rank:
                break
            began = time.perf_counter()
            self.ledger.wait_s += began - waiting_since
            loss = self.task.loss_sum(batch)
            loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it unannotated
            synchronised = self._after_backward(loss)
            waiting_since = time.perf_counter()
            self.ledger.compute_s += waiting_since - began
            self.progress.step(self.epoch, self.step, len(batch.seeds.ids))
            if synchronised and not self._go_on():
                return False
        return True

    def _after_backward(self, loss: Tensor) -> bool:
        counts = self.task.schedule.counts(self.step)
        closes = (self.step + 1) % self.plan.sync.every == 0
        closes |= self.step + 1 == self.plan.steps_per_epoch or self.steps_done + 1 == self.plan.steps_per_rank
        set_learning_rate(self.optimizer, self.plan, self.steps_done)
        self.ledger.loss_sum += float(loss.detach())
        synchronised = self.scheme.after_backward(Step(counts[self.group.rank], sum(counts), closes))
        self.step += 1
        self.steps_done += 1
        return synchronised

    def _go_on(self) -> bool:
        """After a sync: make sure that the replicas agree, and decide together whether to go on (invariants 3 and 10)."""
        digest = self.replica.hash()
        votes = self.group.gather_numbers([digest - 2**63, int(self.stop.asked)])
        agree = all(vote[0] == votes[0][0] for vote in votes)
        traffic = self.group.traffic
        self.events.write(
            "sync",
            epoch=self.epoch + 1,
            steps_done=self.steps_done,
            parameter_hash=f"{digest:016x}",
            replicas_agree=agree,
            payload_bytes=traffic.payload_bytes,
            modelled_bytes=traffic.num_syncs * self.replica.num_parameters * 4,
            wait_s=round(traffic.wait_s, 6),
        )
        if not agree:
            raise RuntimeError(
                f"replicas differ after the sync at step {self.steps_done}: {[f'{v[0] + 2**63:016x}' for v in votes]}"
            )
        if any(vote[1] for vote in votes):
            return False
        every = self.plan.checkpoint.every_steps
        if every and self.steps_done // every > max(self.saved_at, 0) // every:
            self._save()
        return True

    def _finish_epoch(self) -> None:
        loss = float(self.group.sum_numbers(torch.tensor([self.ledger.loss_sum], dtype=torch.float64))[0])
        num_seeds = self._num_seeds()
        row = self.ledger.row(
            epoch=self.epoch, steps_done=self.steps_done, loss=loss / num_seeds[0], num_seeds=num_seeds
        )
        is_last = self.steps_done == self.plan.steps_per_rank
        every = self.plan.evaluate_every_epochs
        improved = False
        if is_last or (every and (self.epoch + 1) % every == 0):
            began = time.perf_counter()
            measures = self.task.evaluate("val")
            improved = self._note_best(measures)
            assert self.best is not None
            row |= evaluation_cells(measures, (self.best.micro_f1, self.best.macro_f1), time.perf_counter() - began)
            self.events.write("evaluate", epoch=self.epoch + 1, split="val", **asdict(measures))
        self.rows.append(row)
        if self.group.rank == 0:
            write_metrics(self.folder.metrics_path, self.rows)
        self.events.write(
            "epoch", epoch=self.epoch + 1, steps_done=self.steps_done, loss=row["loss"], num_seeds=num_seeds[0]
        )
        self.progress.epoch(row)
        self.epoch, self.step = self.epoch + 1, 0
        self.ledger.end_epoch()
        self._save_after_epoch(improved=improved, is_last=is_last)

    def _num_seeds(self) -> tuple[int, int]:
        """Seeds of all ranks in this epoch, and so far."""
        counts = [sum(self.task.schedule.counts(step)) for step in range(self.step)]
        whole = len(self.task.schedule.train_ids)
        return sum(counts), self.epoch * whole + sum(counts)

    def _note_best(self, measures: Measures) -> bool:
        improved = self.best is None or measures.micro_f1 > self.best.micro_f1
        macro = measures.macro_f1 if self.best is None else max(measures.macro_f1, self.best.macro_f1)
        if improved:
            self.best = Best(self.steps_done, self.epoch + 1, measures.micro_f1, macro)
        elif self.best is not None:
            self.best = Best(self.best.step, self.best.epoch, self.best.micro_f1, macro)
        return improved

    def _save_after_epoch(self, *, improved: bool, is_last: bool) -> None:
        settings = self.plan.checkpoint
        keep = bool(settings.keep_every_epochs) and self.epoch % settings.keep_every_epochs == 0
        periodic = bool(settings.every_epochs) and self.epoch % settings.every_epochs == 0
        if improved or is_last or keep or periodic:
            self._save(keep=keep)

    def _save(self, *, keep: bool = False) -> None:
        best = self.best
        position = Position(
            epoch=self.epoch,
            step=self.step,
            steps_done=self.steps_done,
            loss_sum=self.ledger.loss_sum,
            epoch_time_s=self.ledger.elapsed_s() if self.step else 0.0,
            counters=self.ledger.counters(),
            counters_before_epoch=self.ledger.before_epoch,
            best_step=best.step if best else None,
            best_epoch=best.epoch if best else None,
            best_micro_f1=best.micro_f1 if best else None,
            best_macro_f1=best.macro_f1 if best else None,
        )
        rank_state = {f"optimizer.{name}": tensor for name, tensor in optimizer_tensors(self.optimizer).items()}
        rank_state |= {f"scheme.{name}": tensor for name, tensor in self.scheme.state().items()}
        state = State(dict(self.replica.named_tensors()), rank_state, position)
        self.checkpoints.save(state, parameter_hash=self.replica.hash(), keep=keep)
        self.saved_at = self.steps_done
        if self.group.rank == 0:
            self.checkpoints.prune([self.steps_done, best.step if best else None])
        self.events.write("checkpoint", epoch=self.epoch, step=self.step, steps_done=self.steps_done)

    def restore(self) -> bool:
        """Go on from the latest whole checkpoint. False: there is none, and the run begins anew."""
        manifest = self.checkpoints.latest()
        if manifest is None:
            return False
        state = self.checkpoints.load(manifest.positions[0].steps_done)
        position = state.position
        self.replica.load(state.model)
        load_optimizer_tensors(self.optimizer, _below("optimizer.", state.rank))
        self.scheme.load_state(_below("scheme.", state.rank))
        self.epoch, self.step, self.steps_done = position.epoch, position.step, position.steps_done
        self.saved_at = self.steps_done
        self.ledger.loss_sum, self.ledger.earlier_s = position.loss_sum, position.epoch_time_s
        self.ledger.earlier, self.ledger.before_epoch = position.counters, position.counters_before_epoch
        if position.best_step is not None:
            assert (
                position.best_epoch is not None
                and position.best_micro_f1 is not None
                and position.best_macro_f1 is not None
            )
            self.best = Best(position.best_step, position.best_epoch, position.best_micro_f1, position.best_macro_f1)
        if self.group.rank == 0 and self.epoch:
            self.rows = [dict(row) for row in read_metrics(self.folder.metrics_path) if int(row["epoch"]) <= self.epoch]
        return True

    def test_best(self) -> Measures:
        """Measures of the test split with the weights of the best checkpoint."""
        assert self.best is not None
        self.replica.load(self.checkpoints.load(self.best.step).model)
        measures = self.task.evaluate("test")
        self.events.write("evaluate", epoch=self.best.epoch, split="test", **asdict(measures))
        return measures


def set_learning_rate(optimizer: Optimizer, plan: Plan, steps_done: int) -> None:
    """The rate of the step after `steps_done`: a function of the position alone."""
    rate = plan.lr
    if plan.lr_schedule == "cosine":
        rate *= (1 + math.cos(math.pi * steps_done / plan.steps_per_rank)) / 2
    for group in optimizer.param_groups:
        group["lr"] = rate


def optimizer_tensors(optimizer: Optimizer) -> dict[str, Tensor]:
    """The state of an optimizer of one flat parameter: moments and step count."""
    (flat,) = optimizer.param_groups[0]["params"]
    return dict(optimizer.state[flat])


def load_optimizer_tensors(optimizer: Optimizer, tensors: dict[str, Tensor]) -> None:
    """Put saved state back."""
    (flat,) = optimizer.param_groups[0]["params"]
    optimizer.state[flat] = {name: tensor.to(flat.device) for name, tensor in tensors.items()}


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
