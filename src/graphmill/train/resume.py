"""Resume: training goes on from the latest whole checkpoint."""

from graphmill.spec.early_stopping import Patience
from graphmill.train.evaluations import LatestEvaluation
from graphmill.train.loop import Training


def restore(training: Training) -> bool:
    """Continue from the latest whole checkpoint. False: there is none, and the run starts over."""
    checkpoints, evaluations = training.checkpoints, training.evaluations
    if training.group.rank == 0:
        checkpoints.remove_leftovers()
    manifest = checkpoints.latest(training.run_log.damaged)
    if manifest is None:
        return False
    weights = checkpoints.load_weights(manifest.steps_done)
    state = checkpoints.load(manifest.steps_done, are_alike=training.learner.scheme.leaves_ranks_alike)
    position = state.position
    if position.best is not None:
        checkpoints.load_weights(position.best.step)  # a damaged one must be found now, not at the end
    training.learner.load(weights, state.tensors)
    training.stats.reopen(position.books)
    training.run_log.reopen(position.epoch, position.steps_done)
    training.epoch, training.step, training.steps_done = position.epoch, position.step, position.steps_done
    training.saved_at, training.keeps_latest = position.steps_done, manifest.keep
    evaluations.best = position.best
    evaluations.patience = position.patience or Patience()
    if weights.origin is not None:
        evaluations.latest = LatestEvaluation(position.steps_done, weights.origin.measures)
    is_over = evaluations.patience.is_over(training.plan.early_stopping)
    training.stopped_early = is_over and training.epoch < training.calendar.num_epochs
    training.prune()  # an attempt killed right after its last checkpoint did not prune
    return True
