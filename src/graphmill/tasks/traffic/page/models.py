"""Forecasters, how they are optimized, and what their errors cost: what an experiment says of them."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from graphmill.config.frozen import Spec
from graphmill.spec.experiment import CustomLossSpec, CustomModelSpec
from graphmill.spec.optimizer import AdamSpec, AdamWSpec, SgdSpec
from graphmill.spec.synonyms import HIDDEN_WIDTH


class DcrnnSpec(Spec):
    """Diffusion-convolutional recurrent network, encoder and decoder (Li et al. 2018, arXiv 1707.01926)."""

    also_called: ClassVar[Mapping[str, str]] = dict.fromkeys(HIDDEN_WIDTH, "model.rnn_units")

    kind: Literal["dcrnn"] = "dcrnn"
    rnn_units: PositiveInt = Field(64, description="hidden channels of every recurrent layer")
    num_layers: PositiveInt = Field(2, description="recurrent layers of the encoder, and of the decoder")
    max_diffusion_step: PositiveInt = Field(2, description="K: hops along either direction that one gate sees")
    cl_decay_steps: float = Field(
        2000,
        ge=0,
        description="scheduled sampling: decay, in steps of a rank, of the probability that the decoder is fed the "
        "true reading (inverse sigmoid); 0: it never is",
    )


class StidSpec(Spec):
    """Spatial-temporal identities and residual layers, without a graph (Shao et al. 2022, arXiv 2208.05233)."""

    kind: Literal["stid"]
    embed_dim: PositiveInt = Field(
        32, description="channels of the readings, of the sensor, of the time of day and of the weekday, each"
    )
    num_layers: PositiveInt = Field(3, description="residual layers, of four times embed_dim channels")
    dropout: float = Field(0.15, ge=0, lt=1, description="inside every residual layer")


ForecasterSpec = Annotated[DcrnnSpec | StidSpec | CustomModelSpec, Field(discriminator="kind")]


_CLIPPED_AT_5 = Field(5.0, description="the mean gradient of an update is scaled down to this L2 norm; null: never")
_DCRNN_EPS = Field(1e-3, gt=0, description="added to the denominator of the update")


class DcrnnAdamSpec(AdamSpec):
    """Adam with the defaults of DCRNN's authors."""

    eps: float = _DCRNN_EPS
    max_grad_norm: PositiveFloat | None = _CLIPPED_AT_5


class DcrnnAdamWSpec(AdamWSpec):
    """AdamW with the defaults of DCRNN's authors where it has the same keys."""

    eps: float = _DCRNN_EPS
    max_grad_norm: PositiveFloat | None = _CLIPPED_AT_5


class DcrnnSgdSpec(SgdSpec):
    """SGD, its gradients clipped as DCRNN's authors did."""

    max_grad_norm: PositiveFloat | None = _CLIPPED_AT_5


DcrnnOptimizerSpec = Annotated[DcrnnAdamSpec | DcrnnAdamWSpec | DcrnnSgdSpec, Field(discriminator="kind")]


class MaeSpec(Spec):
    """Mean absolute error over the readings that are not missing, in the unit of the data."""

    kind: Literal["mae"] = "mae"


class MseSpec(Spec):
    """Mean squared error over the readings that are not missing, in the squared unit of the data."""

    kind: Literal["mse"]


class HuberSpec(Spec):
    """Squared error / 2 up to `delta`, `delta` × (absolute error − `delta` / 2) beyond (Huber 1964)."""

    kind: Literal["huber"]
    delta: PositiveFloat = Field(1.0, description="where squares become lines, in the unit of the data")


ForecastLossSpec = Annotated[MaeSpec | MseSpec | HuberSpec | CustomLossSpec, Field(discriminator="kind")]
