"""What tasks that train on sampled neighbourhoods have in common: their keys of `train`."""

from collections.abc import Mapping
from typing import ClassVar, Final, Self

from pydantic import Field, model_validator

from graphmill.spec.exact_pass import ABOUT_EVALUATE_ON, AskedEvaluation
from graphmill.spec.experiment import Fraction, TrainSpec
from graphmill.spec.fanouts import FanOuts, check_fanouts
from graphmill.spec.synonyms import ALSO_CALLED

ABOUT_FANOUTS: Final = (
    "fan-outs, first hop first; -1: all neighbours; of a typed graph also a list for each relation, "
    "{source:name:target: [5, 5], …}"
)


class NeighbourTrainSpec(TrainSpec):
    """How to train on sampled neighbourhoods."""

    also_called: ClassVar[Mapping[str, str]] = {
        **ALSO_CALLED,
        **dict.fromkeys(("drop_edge", "dropedge", "dropout_edge", "dropout_adj"), "train.edge_dropout"),
        **dict.fromkeys(("fanout", "fanouts", "fan_out", "neighbours", "sizes"), "train.num_neighbors"),
    }

    num_neighbors: FanOuts = Field((25, 10), description=ABOUT_FANOUTS)
    edge_dropout: Fraction = Field(
        0.0,
        description="probability that a step of training leaves out an edge that was drawn for it, anew each step "
        "(DropEdge, Rong et al. 2020, arXiv 1907.10903)",
    )
    evaluate_on: AskedEvaluation = Field("auto", description=ABOUT_EVALUATE_ON)

    @model_validator(mode="after")
    def _fanouts_are_counts(self) -> Self:
        check_fanouts(self.num_neighbors)
        return self
