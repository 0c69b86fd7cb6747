"""How commands read words that typer cannot: short flags, several values of one option, another command after `--`."""

from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Any, Final

import typer
from typer.core import TyperCommand

from graphmill.base.errors import UserError
from graphmill.spec.flags import SHORT_FLAGS, ShortFlags, split_short_flags, unknown_flag

_WORDS_KEY: Final = "graphmill.words"
_SHORT_FLAGS_KEY: Final = "graphmill.short_flags"
_REST_KEY: Final = "graphmill.rest"

_SEVERAL: Final[dict[str, Callable[[str], bool]]] = {
    "--stages": lambda word: not word.startswith("-"),
    "--nodes-list": lambda word: word.replace(",", "").isdecimal(),
}
"""Options that take all words after them that are of this form; typer's take a fixed number."""


class WordsCommand(TyperCommand):
    """A command that remembers the words that it was called with, and reads `--stages few many`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401  # typer's Context, old and new
        """Join values to their options before typer sees them, and keep the words."""
        joined = self.joined(args)
        ctx.meta.setdefault(_WORDS_KEY, list(joined))
        return super().parse_args(ctx, joined)

    def joined(self, args: Sequence[str]) -> list[str]:
        """`--comment --x` → `--comment=--x`: what stands for a value is not read as a short flag, or as `--`."""
        with_value = {
            flag
            for option in self.params
            if option.nargs == 1 and not getattr(option, "is_flag", True)
            for flag in option.opts
            if flag.startswith("--")
        }
        words: list[str] = []
        queue = list(args)
        while queue:
            word = queue.pop(0)
            if word == "--":
                return [*words, word, *queue]
            if word in _SEVERAL:
                values = list(takewhile(_SEVERAL[word], queue))
                del queue[: len(values)]
                words.append(f"{word}={' '.join(values)}")
            elif word in with_value and queue:
                words.append(f"{word}={queue.pop(0)}")
            else:
                words.append(word)
        return words


class ShortFlagsCommand(WordsCommand):
    """A command that also takes short flags: `--max_steps 4000 --num_neighbors 25 10 …`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401  # typer's Context, old and new
        """Take the short flags out before typer sees the rest; it cannot read `--num_neighbors 25 10`."""
        joined = self.joined(args)
        ctx.meta.setdefault(_WORDS_KEY, list(joined))
        flags = split_short_flags(joined)
        own = [flag for parameter in self.params for flag in (*parameter.opts, *parameter.secondary_opts)]
        for word in takewhile(lambda word: word != "--", flags.rest):
            if word.startswith("--") and word.partition("=")[0] not in [*own, "--help"]:
                if "--run" in own and "--run" in flags.rest:
                    raise UserError(
                        f"{word} stands where submit's own flags stand: --run takes the command after --",
                        fix="graphmill submit --run [flags of submit] -- COMMAND [flags of the command]",
                    )
                known = [option.removeprefix("--") for option in own if option.startswith("--")]
                raise unknown_flag(word, known, ctx.command_path)
        ctx.meta[_SHORT_FLAGS_KEY] = flags
        return super().parse_args(ctx, list(flags.rest))


class RestCommand(ShortFlagsCommand):
    """A command that keeps what follows `--`, the words of another: `rest_of(ctx)`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401  # typer's Context, old and new
        """Take them off before typer sees the others."""
        words = self.joined(args)  # first: `--` may be the value of an option
        ctx.meta.setdefault(_WORDS_KEY, list(words))
        if "--" in words:
            cut = words.index("--")
            ctx.meta[_REST_KEY] = words[cut + 1 :]
            words = words[:cut]
        return super().parse_args(ctx, words)


def words_of(ctx: typer.Context) -> list[str]:
    """The words after the command's name; those that options take are joined to them."""
    words: list[str] = ctx.meta[_WORDS_KEY]
    return words


def rest_of(ctx: typer.Context) -> list[str] | None:
    """The words after `--`; None without it."""
    return ctx.meta.get(_REST_KEY)


def with_short_flags(ctx: typer.Context, overrides: Sequence[str]) -> list[str]:
    """`overrides` and those that the short flags in this command line set."""
    flags: ShortFlags = ctx.meta[_SHORT_FLAGS_KEY]
    return flags.over(overrides)


def short_flags_text(where: str = "docs/coming-from.md") -> str:
    """The last line of a help text: the short flags, and where they stand or are explained."""
    return f"Short for -O, {where}: {' '.join(f'--{name}' for name in SHORT_FLAGS)}"
