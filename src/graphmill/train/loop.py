"""The loop: what one rank does from its first step to its last."""

import time
from contextlib import closing
from dataclasses import dataclass
from itertools import islice

import torch

from graphmill.graph.batch import MiniBatch
from graphmill.record.manifest import Best, Position
from graphmill.record.run_folder import Status
from graphmill.runtime.stop import StopRequest
from graphmill.spec.plan import Plan
from graphmill.sync.group import Group
from graphmill.sync.schemes import Step
from graphmill.tasks.node_classification.metrics import Measures
from graphmill.tasks.node_classification.task import NodeClassification
from graphmill.train.checkpoint import CheckpointStore, State
from graphmill.train.journal import Journal
from graphmill.train.learner import Learner
from graphmill.train.ledger import Ledger, evaluation_cells


@dataclass(slots=True)
class Training:
    """One rank's training, from a plan. `epoch`, `step` and `steps_done` say where the next step begins."""

    plan: Plan
    group: Group
    task: NodeClassification
    learner: Learner
    checkpoints: CheckpointStore
    ledger: Ledger
    journal: Journal
    stop: StopRequest
    epoch: int = 0
    step: int = 0  # within the epoch
    steps_done: int = 0
    best: Best | None = None
    saved_at: int = 0  # steps_done of the latest checkpoint

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
        steps_left = self.plan.steps_per_rank - self.steps_done
        with closing(self.task.batches(self.epoch, self.step)) as batches:
            for batch in islice(self.ledger.timed(batches), steps_left):
                with self.ledger.computing():
                    self._forward_and_backward(batch)
                    synchronised = self._after_backward()
                self.journal.progress.step(self.epoch, self.step, len(batch.seeds.ids))
                if synchronised and not self._go_on():
                    return False
        return True

    def _forward_and_backward(self, batch: MiniBatch) -> None:
        """Add the loss and the gradients of the batch's seeds. The model never sees a batch without seeds."""
        if len(batch.seeds.ids):
            loss = self.task.loss_sum(batch)
            loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it unannotated
            self.ledger.loss_sum += float(loss.detach())

    def _after_backward(self) -> bool:
        counts = self.task.schedule.counts(self.step)
        is_last = self.step + 1 == self.plan.steps_per_epoch or self.steps_done + 1 == self.plan.steps_per_rank
        closes_round = is_last or (self.step + 1) % self.plan.sync.every == 0
        synchronised = self.learner.update(Step(counts[self.group.rank], sum(counts), closes_round), self.steps_done)
        self.step += 1
        self.steps_done += 1
        return synchronised

    def _go_on(self) -> bool:
        """After a sync: see that the replicas agree, and decide together whether to go on (invariants 3 and 10)."""
        digest = self.learner.replica.hash()
        votes = self.group.gather_numbers([digest - 2**63, int(self.stop.asked)])
        agree = all(vote[0] == votes[0][0] for vote in votes)
        traffic = self.group.traffic
        self.journal.events.write(
            "sync",
            epoch=self.epoch + 1,
            steps_done=self.steps_done,
            parameter_hash=f"{digest:016x}",
            replicas_agree=agree,
            payload_bytes=traffic.payload_bytes,
            modelled_bytes=traffic.num_syncs * self.learner.replica.num_parameters * 4,
            wait_s=round(traffic.wait_s, 6),
        )
        if not agree:
            hashes = ", ".join(f"{vote[0] + 2**63:016x}" for vote in votes)
            raise RuntimeError(f"replicas differ after the sync at step {self.steps_done}: {hashes}")
        if any(vote[1] for vote in votes):
            return False
        every = self.plan.checkpoint.every_steps
        if every and self.steps_done // every > self.saved_at // every:
            self._save()
        return True

    def _finish_epoch(self) -> None:
        loss_sum = float(self.group.sum_numbers(torch.tensor([self.ledger.loss_sum], dtype=torch.float64))[0])
        row = self.ledger.row(
            epoch=self.epoch, steps_done=self.steps_done, loss_sum=loss_sum, num_seeds=self._num_seeds()
        )
        is_last = self.steps_done == self.plan.steps_per_rank
        every = self.plan.evaluate_every_epochs
        improved = False
        if is_last or (every and (self.epoch + 1) % every == 0):
            began = time.perf_counter()
            measures = self.task.evaluate("val")
            improved, self.best = self._compared(measures)
            best_so_far = (self.best.micro_f1, self.best.macro_f1)
            row |= evaluation_cells(measures, best_so_far, time.perf_counter() - began)
            self.journal.evaluated(self.epoch + 1, "val", measures)
        self.journal.epoch_ended(row)
        self.epoch, self.step = self.epoch + 1, 0
        self.ledger.end_epoch()
        self._save_after_epoch(needed=improved or is_last)

    def _num_seeds(self) -> tuple[int, int]:
        """Seeds of all ranks in this epoch, and so far."""
        in_epoch = sum(sum(self.task.schedule.counts(step)) for step in range(self.step))
        return in_epoch, self.epoch * len(self.task.schedule.train_ids) + in_epoch

    def _compared(self, measures: Measures) -> tuple[bool, Best]:
        """Whether `measures` are better than the best so far, and the best with them."""
        best = self.best
        if best is None:
            return True, Best(
                step=self.steps_done, epoch=self.epoch + 1, micro_f1=measures.micro_f1, macro_f1=measures.macro_f1
            )
        macro_f1 = max(best.macro_f1, measures.macro_f1)
        if measures.micro_f1 > best.micro_f1:
            return True, Best(step=self.steps_done, epoch=self.epoch + 1, micro_f1=measures.micro_f1, macro_f1=macro_f1)
        return False, best.model_copy(update={"macro_f1": macro_f1})

    def _save_after_epoch(self, *, needed: bool) -> None:
        settings = self.plan.checkpoint
        keep = bool(settings.keep_every_epochs) and self.epoch % settings.keep_every_epochs == 0
        periodic = bool(settings.every_epochs) and self.epoch % settings.every_epochs == 0
        if needed or keep or periodic:
            self._save(keep=keep)

    def _save(self, *, keep: bool = False) -> None:
        position = Position(
            epoch=self.epoch,
            step=self.step,
            steps_done=self.steps_done,
            books=self.ledger.books(self.steps_done, mid_epoch=self.step > 0),
            best=self.best,
        )
        replica = self.learner.replica
        state = State(dict(replica.named_tensors()), self.learner.state(), position)
        self.checkpoints.save(state, parameter_hash=replica.hash(), keep=keep)
        self.saved_at = self.steps_done
        self._prune()
        self.journal.events.write("checkpoint", epoch=self.epoch, step=self.step, steps_done=self.steps_done)

    def _prune(self) -> None:
        """Keep the latest checkpoint and the best, and those that are kept for good."""
        if self.group.rank == 0:
            self.checkpoints.prune([self.steps_done, *([self.best.step] if self.best else [])])

    def restore(self) -> bool:
        """Go on from the latest whole checkpoint. False: there is none, and the run begins anew."""
        if self.group.rank == 0:
            self.checkpoints.remove_leftovers()
        manifest = self.checkpoints.latest(self.journal.damaged)
        if manifest is None:
            return False
        state = self.checkpoints.load(manifest.steps_done)
        position = state.position
        if position.best is not None:
            self.checkpoints.load_model(position.best.step)  # a damaged one is to be found now, not at the end
        self.learner.load(state.model, state.rank)
        self.ledger.reopen(position.books)
        self.journal.reopen(position.epoch)
        self.epoch, self.step, self.steps_done = position.epoch, position.step, position.steps_done
        self.best, self.saved_at = position.best, position.steps_done
        self._prune()  # an attempt that was killed right after its last checkpoint did not come to it
        return True

    def test_best(self) -> Measures:
        """Measures of the test split with the weights of the best checkpoint."""
        assert self.best is not None
        self.learner.replica.load(self.checkpoints.load_model(self.best.step))
        measures = self.task.evaluate("test")
        self.journal.evaluated(self.best.epoch, "test", measures)
        return measures
