"""What tasks that tell classes apart have in common: the loss that is trained on."""

from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeFloat, model_validator

from graphmill.base.errors import UserError
from graphmill.config.frozen import Spec
from graphmill.spec.experiment import CustomLossSpec, Fraction


class CrossEntropySpec(Spec):
    """The loss that is trained on. Validation and test losses are without weights and smoothing."""

    kind: Literal["cross_entropy"] = Field(
        "cross_entropy",
        description="of the label's probability; of several labels per node binary, a mean over the labels",
    )
    class_weights: Literal["none", "balanced"] | tuple[NonNegativeFloat, ...] = Field(
        "none",
        description="how much a seed counts, by its class; balanced: each class the same, and 1 on average; of several "
        "labels per node: how much a 1 counts beside a 0, by label; balanced: as much as there are zeros for each one",
    )
    label_smoothing: Fraction = Field(
        0.0, description="share of the target that is spread evenly over all classes, or over 0 and 1"
    )

    @model_validator(mode="after")
    def _some_class_counts(self) -> Self:
        if not isinstance(self.class_weights, str) and not any(self.class_weights):
            raise ValueError(f"class_weights {list(self.class_weights)} must hold a number > 0")
        return self


ClassifierLossSpec = Annotated[CrossEntropySpec | CustomLossSpec, Field(discriminator="kind")]


def refuse_other_classes(loss: ClassifierLossSpec, num_classes: int, dataset: str) -> None:
    """Raise a `UserError` if class weights are given, and not one for each class of the data."""
    weights = loss.class_weights if isinstance(loss, CrossEntropySpec) else "none"
    if not isinstance(weights, str) and len(weights) != num_classes:
        raise UserError(
            f"train.loss.class_weights holds {len(weights)} numbers, but {dataset} has {num_classes} classes",
            fix=f"give {num_classes} numbers, or set train.loss.class_weights=balanced",
        )
