"""What other programs call our keys, for messages: where the names are not alike, no likeness finds them."""

from typing import Final

ALSO_CALLED: Final = {
    "learning_rate": "train.optimizer.lr",
    "optim": "train.optimizer.kind",
    "scheduler": "train.optimizer.schedule.kind",
    "lr_scheduler": "train.optimizer.schedule.kind",
    "warmup": "train.optimizer.schedule.warmup_steps",
    "clip_grad_norm": "train.optimizer.max_grad_norm",
    "grad_clip": "train.optimizer.max_grad_norm",
    "patience": "train.early_stopping.patience",
    "num_epochs": "train.epochs",
    "max_epochs": "train.epochs",
    "bs": "train.batch_size",
    "world_size": "train.ranks",
    "nproc_per_node": "train.ranks",
    "random_seed": "train.seed",
    "rng_seed": "train.seed",
    "dtype": "train.precision",
    "criterion": "train.loss",
}
"""Of the section `train`, whatever the task."""

HIDDEN_WIDTH: Final = ("hidden_dim", "hidden_size", "hidden_units", "hidden_features", "hidden", "num_hidden", "width")
"""The width of a model's layers."""
