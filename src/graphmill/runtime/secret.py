"""Secret that only the processes of one run know: a token, which their launcher hands over in the environment.

It never goes over the network, and lies in no file. What it is used for is derived from it, for one purpose each.
"""

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from typing import Final

from graphmill.base.errors import UserError
from graphmill.runtime.job_environment import JobEnvironment

TOKEN: Final = "GRAPHMILL_TOKEN"
_BYTES: Final = 16
_SIGN: Final = 32  # characters of a signature: 128 bits


def new_token() -> str:
    """Make a token for the environment of the ranks of one attempt."""
    return secrets.token_hex(_BYTES)


class Secret:
    """Secret of a run, derived from a token. It has no `repr` that would show it."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        self._key = key

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> "Secret":
        """Secret of the run whose process has this environment.

        Ranks that torchrun or a user's own srun has started have no token unless the user exports one: what they know
        in common is not a secret then, and only tells runs apart (docs/assumptions.md).
        """
        token = environ.get(TOKEN, "")
        if token and len(token) < 2 * _BYTES:
            raise UserError(
                f"{TOKEN} has {len(token)} characters, which can be guessed",
                fix=f"export {TOKEN}=$(openssl rand -hex {_BYTES}), the same on all hosts, or unset it",
            )
        job = JobEnvironment(environ)
        return cls((token or "/".join([environ.get("TORCHELASTIC_RUN_ID", ""), job.job_id, job.step_id])).encode())

    def derived(self, purpose: str) -> str:
        """32 characters that tell nothing of the token, or of what is derived for another purpose."""
        return hmac.digest(self._key, f"for {purpose}".encode(), hashlib.sha256).hex()[:_SIGN]

    def signed(self, name: str, word: str) -> str:
        """`word` with a signature, as what is said under `name`."""
        return self._signature(name, word) + word

    def verified(self, name: str, text: str) -> str | None:
        """The word that was signed; None if it was not, or under another name."""
        sign, word = text[:_SIGN], text[_SIGN:]
        return word if hmac.compare_digest(sign.encode(), self._signature(name, word).encode()) else None

    def _signature(self, name: str, word: str) -> str:
        said = f"said {len(name)} {name} {word}".encode()
        return hmac.digest(self._key, said, hashlib.sha256).hex()[:_SIGN]
