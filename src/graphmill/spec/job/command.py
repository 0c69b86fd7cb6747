"""A command that a job runs in place of training."""

from typing import Final

from pydantic import Field

from graphmill.config.frozen import Spec

OURS: Final = "graphmill"
"""The first word of our own commands: the job's interpreter runs them, whatever is on its PATH."""


class Command(Spec):
    """The content of command.json; a job has it, too."""

    words: tuple[str, ...] = Field(description="the program and its arguments; no shell reads them")
    data: str | None = Field(None, description="prepared data that it reads, which are staged first; null: none")

    @property
    def is_ours(self) -> bool:
        """Whether it is one of graphmill's own, whose exit statuses say what they say of a run."""
        return self.words[0] == OURS
