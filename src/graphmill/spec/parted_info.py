"""What the planner must know of a prepared graph that may be in parts."""

from pydantic import Field

from graphmill.base.errors import AbsentDataError
from graphmill.spec.partition import DEFAULT_METHOD, PARTS_FOLDER, InParts, PartitionSpec
from graphmill.spec.typed_graph import TypedInfo


class PartedInfo(TypedInfo):
    """Facts of a dataset that may be in parts."""

    num_parts: int | None = Field(None, description="absent: the graph is stored whole")

    @property
    def prepared_checksum(self) -> str:
        """The checksum; a `UserError` if nothing is prepared, or it is not in parts."""
        if self.is_prepared or self.num_parts is None:
            return super().prepared_checksum
        root, _, name = self.path.rpartition(f"/{PARTS_FOLDER}/{self.name}/")
        _, _, method = name.partition("-")
        how = f"--num-parts {self.num_parts}" + ("" if method == DEFAULT_METHOD else f" --method {method}")
        raise AbsentDataError(
            f"{self.name} is not in {self.num_parts} parts under {root}: this plan has its sizes from the catalogue,"
            " and cannot be trained",
            fix=f"graphmill partition {self.name} {how} --dataset-root {root}; before that, if it is not prepared yet:"
            f" graphmill prepare {self.name} --dataset-root {root} (add --from PATH if it is not a download)",
        )

    def placed(self, asked: PartitionSpec | None) -> InParts | None:
        """How its parts are divided among hosts; None: it is stored whole."""
        if asked is None or self.num_parts is None:
            return None
        return InParts(self.num_parts, asked.placement, asked.topology, asked.seeds)
