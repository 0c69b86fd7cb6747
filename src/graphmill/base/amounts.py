"""Lengths of time and amounts of memory as Slurm writes them."""

import re
from typing import Final

_MINUTES: Final = re.compile(r"[1-9][0-9]{0,8}")
_CLOCK: Final = re.compile(r"(?:([0-9]{1,4})-)?([0-9]{1,3}):([0-9]{1,2}):([0-9]{1,2})")
_DAYS: Final = re.compile(r"([0-9]{1,4})-([0-9]{1,3})(?::([0-9]{1,2}))?")
_MEMORY: Final = re.compile(r"([0-9]{1,12})([KMGT]?)", re.IGNORECASE)
_MIB_OF: Final = {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1024 * 1024}


def seconds_of(text: str | int) -> int | None:
    """Seconds of minutes, H:M:S, D-H, D-H:M or D-H:M:S; None for anything else, and for no time at all.

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


def clock_of(seconds: int) -> str:
    """As Slurm writes it.

    >>> clock_of(1800), clock_of(93600)
    ('00:30:00', '1-02:00:00')
    """
    days, rest = divmod(seconds, 86400)
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock


def mib_of(text: str) -> float | None:
    """MiB of an amount such as 85G, 4000M or 4000; None for anything else.

    >>> mib_of("85G"), mib_of("4000"), mib_of("lots")
    (87040.0, 4000.0, None)
    """
    amount = _MEMORY.fullmatch(text)
    return None if amount is None else float(int(amount[1]) * _MIB_OF[amount[2].upper()])
