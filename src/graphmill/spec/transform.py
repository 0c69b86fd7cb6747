"""What may be done to features when they are read."""

from typing import Literal

FeatureTransform = Literal["as_stored", "binary", "row_normalised", "standardised"]
"""binary, row_normalised: of sparse features; standardised: of dense ones."""
