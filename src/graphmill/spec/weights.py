"""What a run begins with: weights, as asked for and as a plan records them; or the end of another run."""

from typing import Literal, Self

from pydantic import Field, model_validator

from graphmill.config.frozen import Spec


class InitFromSpec(Spec):
    """Begin with the weights of another run, or of a file, in place of random ones."""

    run: str = Field("", description="a run folder whose weights the run begins with; empty: none")
    file: str = Field("", description="a safetensors file whose weights the run begins with; empty: none")
    weights: Literal["best", "last"] = Field("best", description="with run: of which checkpoint")
    include: tuple[str, ...] = Field(
        (), description="only tensors whose name matches one of these patterns, such as layers.0.*"
    )
    exclude: tuple[str, ...] = Field((), description="no tensors whose name matches one of these patterns")

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.run and self.file:
            raise ValueError("file cannot be given together with run")
        if self.file and "weights" in self.model_fields_set:
            raise ValueError("weights is for init_from.run; a file has one set of weights")
        if not self.run and not self.file:
            for name in ("weights", "include", "exclude"):
                if getattr(self, name) != type(self).model_fields[name].default:
                    raise ValueError(f"{name} is given, but neither run nor file")
        return self

    @property
    def is_given(self) -> bool:
        """Whether weights are given; false: they are random."""
        return bool(self.run or self.file)


class InitialWeights(Spec):
    """The weights that a run begins with: found, and identified by their checksum."""

    source: str = Field(description="the run folder or file that was asked for")
    path: str = Field(description="the file of weights")
    checksum: str = Field(description="of names, dtypes, shapes and values")
    include: tuple[str, ...]
    exclude: tuple[str, ...]


class Ancestor(Spec):
    """The run that this one continues with more epochs: from its last checkpoint, with all resume state."""

    run_id: str
    source: str = Field(description="its run folder")
    plan_hash: str = Field(description="of its plan.json")
    epochs: int = Field(description="that it completed")
    steps_done: int = Field(description="of each rank, in the checkpoint that is continued")
    checksum: str = Field(description="xxh3 of the manifest of that checkpoint, which has those of its files")
