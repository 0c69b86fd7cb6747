"""What ranks tell each other in their store, signed: what a stranger writes there counts as not written.

How long a rank waits for the others before training is a `PeerTimeout`. torch's store asks no one who they are, and
lists its keys to all who connect.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from torch.distributed.distributed_c10d import PrefixStore, Store

from graphmill.base.errors import UserError
from graphmill.runtime.secret import Secret

_TICK_S: Final = 0.02


class NotMetError(UserError):
    """Other ranks of the run did not come, or cannot be reached."""


@dataclass(slots=True)
class PeerTimeout:
    """Deadline of a rank's wait, counted from when it is ready: ranks of one run start at different times."""

    seconds: float
    setting: str = ""  # what to type to wait longer; "": nothing
    _until: float = field(init=False)

    def __post_init__(self) -> None:
        self._until = time.monotonic() + self.seconds

    def renewed(self) -> "PeerTimeout":
        """Timeout of the same length that begins now, for the next thing to wait for."""
        return PeerTimeout(self.seconds, self.setting)

    @property
    def left_s(self) -> float:
        """Seconds; 0 if it is over."""
        return max(0.0, self._until - time.monotonic())

    def go_on(self) -> bool:
        """Whether to look once more, which is after a moment."""
        time.sleep(_TICK_S)
        return self.left_s > 0


class Words:
    """Words on one topic. Nothing here blocks but `awaited`."""

    def __init__(self, store: Store, secret: Secret, topic: str) -> None:
        self.store = store
        self._topic, self._secret = PrefixStore(f"graphmill.{topic}", store), secret
        self._name = topic

    def about(self, topic: str) -> "Words":
        """Words on another topic, in the same store."""
        return Words(self.store, self._secret, topic)

    def by_own_connection(self) -> "Words":
        """Words on this topic through a connection of their own: what waits there does not hold up this one."""
        return Words(self.store.clone(), self._secret, self._name)  # type: ignore[attr-defined]  # torch's stubs lack it

    def derived(self, purpose: str) -> str:
        """A secret of the run (`Secret.derived`)."""
        return self._secret.derived(purpose)

    def put(self, key: str, word: str) -> None:
        """Say it."""
        self._topic.set(key, self._secret.signed(self._named(key), word))

    def put_first(self, key: str, word: str) -> str:
        """Say it unless another rank has said something. Returns what was said first."""
        said = self._topic.compare_set(key, "", self._secret.signed(self._named(key), word)).decode(errors="replace")
        return self._secret.verified(self._named(key), said) or word

    def get(self, key: str) -> str | None:
        """What a rank said; None: nothing yet."""
        if not self._topic.check([key]):
            return None
        return self._secret.verified(self._named(key), self._topic.get(key).decode(errors="replace"))

    def awaited(self, keys: Sequence[str], patience: PeerTimeout) -> dict[str, str]:
        """What was said by key, once all was; without those that were not said in time."""
        found: dict[str, str] = {}
        for key in keys:
            word = self.get(key)
            while word is None and patience.go_on():
                word = self.get(key)
            if word is not None:
                found[key] = word
        return found

    def _named(self, key: str) -> str:
        return f"{self._name}/{key}"
