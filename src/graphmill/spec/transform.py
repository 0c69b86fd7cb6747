"""What may be done to features when they are read."""

from typing import Literal, Protocol

from graphmill.base.errors import UserError

FeatureTransform = Literal["as_stored", "binary", "row_normalised", "standardised"]
"""binary, row_normalised: of sparse features; standardised: of dense ones."""


class HasFeatures(Protocol):
    """What must be known of the features of prepared data."""

    @property
    def name(self) -> str:
        """Name of the data."""

    @property
    def has_sparse_features(self) -> bool:
        """Whether they are sparse; else they are dense."""

    @property
    def scales_differ(self) -> bool:
        """Whether they are dense, no counts, and their columns of unlike scale."""


def transform_of(transform: FeatureTransform | Literal["auto"], dataset: HasFeatures) -> FeatureTransform:
    """What is done to the features of some data; `UserError` if it is not for such features."""
    if transform == "auto":
        return "standardised" if dataset.scales_differ else "as_stored"
    refuse_other_form(transform, dataset)
    return transform


def refuse_other_form(features: FeatureTransform, dataset: HasFeatures) -> None:
    """Raise a `UserError` if what is done to features is not for those of the data."""
    is_sparse = dataset.has_sparse_features
    if features == "as_stored" or (features == "standardised") != is_sparse:
        return
    other = "sparse, and it would fill in their zeros" if is_sparse else "dense"
    raise UserError(
        f"dataset.features is {features}, which is for {'dense' if is_sparse else 'sparse'} features, but those of"
        f" {dataset.name} are {other}",
        fix=f"set dataset.features=as_stored{', or row_normalised' if is_sparse else ', or standardised'}",
    )
