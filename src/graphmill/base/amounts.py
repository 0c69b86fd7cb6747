"""Lengths of time and amounts of memory as Slurm writes them."""

import re
from typing import Final

_MINUTES: Final = re.compile(r"[1-9][0-9]{0,8}")
_CLOCK: Final = re.compile(r"(?:([0-9]{1,4})-)?([0-9]{1,3}):([0-9]{1,2}):([0-9]{1,2})")
_DAYS: Final = re.compile(r"([0-9]{1,4})-([0-9]{1,3})(?::([0-9]{1,2}))?")
_MEMORY: Final = re.compile(r"([0-9]{1,12})([KMGT]?)", re.IGNORECASE)
_ACCOUNTED: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)([KMGTP]?)[nc]?")
_SPAN: Final = re.compile(r"(?:([0-9]+)-)?(?:([0-9]+):)?([0-9]+):([0-9]+(?:\.[0-9]+)?)")
_BYTES_OF: Final[dict[str, int]] = {"": 1, **{letter: 1024**power for power, letter in enumerate("KMGTP", start=1)}}
_NO_VALUE: Final = 2.0**63  # in the accounting of a job whose start is not recorded: Slurm's NO_VAL64


def seconds_of(text: str | int) -> int | None:
    """Seconds of a limit as sbatch --time takes it: minutes, H:M:S, D-H, D-H:M or D-H:M:S.

    None for anything else, and for no time at all.

    >>> seconds_of("1-02:00:00"), seconds_of(30), seconds_of("30:00")
    (93600, 1800, None)
    """
    written = str(text)
    days = hours = minutes = seconds = 0
    if _MINUTES.fullmatch(written):
        minutes = int(written)
    elif clock := _CLOCK.fullmatch(written):
        days, hours, minutes, seconds = (int(part or 0) for part in clock.groups())
    elif day := _DAYS.fullmatch(written):
        days, hours, minutes = (int(part or 0) for part in day.groups())
    else:
        return None
    if (minutes > 59 and ":" in written) or seconds > 59:
        return None
    return (days * 24 + hours) * 3600 + minutes * 60 + seconds or None


def span_of(text: str) -> float | None:
    """Seconds of a span as Slurm's programs print it: `[D-][HH:]MM:SS[.mmm]`; None for UNLIMITED, NOT_SET, INVALID …

    >>> span_of("1-02:00:01"), span_of("10:00"), span_of("00:20.125"), span_of("UNLIMITED")
    (93601.0, 600.0, 20.125, None)
    """
    match = _SPAN.fullmatch(text.strip())
    if match is None or not text.isascii():
        return None
    days, hours, minutes = (int(part or 0) for part in match.groups()[:3])
    return ((days * 24 + hours) * 60 + minutes) * 60 + float(match[4])


def clock_of(seconds: float) -> str:
    """Time as Slurm writes it and sbatch --time reads it, to the nearest second.

    >>> clock_of(1800), clock_of(93600)
    ('00:30:00', '1-02:00:00')
    """
    days, rest = divmod(round(seconds), 86400)
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock


def shown_clock(seconds: float) -> str:
    """H:MM:SS for display, with days if there are some.

    >>> shown_clock(75), shown_clock(90061)
    ('0:01:15', '1-01:01:01')
    """
    return clock_of(int(seconds)).removeprefix("0") if seconds < 36000 else clock_of(int(seconds))


def mib_of(text: str) -> float | None:
    """MiB of an amount as sbatch --mem takes it: 85G, 4000M or 4000; None for anything else.

    >>> mib_of("85G"), mib_of("4000"), mib_of("lots")
    (87040.0, 4000.0, None)
    """
    amount = _MEMORY.fullmatch(text)
    return None if amount is None else int(amount[1]) * _BYTES_OF[amount[2].upper() or "M"] / 2**20


def accounted_mib(text: str) -> float | None:
    """MiB of what sacct prints: bytes, or a number and a letter; old versions add n (per host) or c (per core).

    >>> accounted_mib("2097152"), accounted_mib("85G"), accounted_mib("1000Mn"), accounted_mib("")
    (2.0, 87040.0, 1000.0, None)
    >>> accounted_mib("18446744073709551614M") is None
    True
    """
    match = _ACCOUNTED.fullmatch(text)
    if match is None or float(match[1]) >= _NO_VALUE:
        return None
    return float(match[1]) * _BYTES_OF[match[2]] / 2**20


def gib(mib: float) -> str:
    """GiB for display.

    >>> gib(87040), gib(12390), gib(120)
    ('85', '12.1', '0.12')
    """
    value = mib / 1024
    if value < 1:
        return f"{value:.2g}"
    return f"{value:.0f}" if abs(value - round(value)) < 0.05 else f"{value:.1f}"


def slurm_memory(mib: float) -> str:
    """Amount of memory as `slurm.mem` takes it.

    >>> slurm_memory(16384), slurm_memory(1536)
    ('16G', '1536M')
    """
    return f"{mib / 1024:.0f}G" if mib % 1024 == 0 else f"{mib:.0f}M"
