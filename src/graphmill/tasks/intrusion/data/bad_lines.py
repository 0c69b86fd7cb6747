"""How many lines of a capture may give no frame before its data are not what they seem."""

import math
from pathlib import Path
from typing import Final

from graphmill.base.errors import UserError
from graphmill.tasks.intrusion.data.frames import LATE, Problems
from graphmill.tasks.intrusion.page import CapturePrepareOptions

_LEGAL: Final = ("empty line", "remote frame", "error frame", LATE)
"""What buses and loggers do: counted, and no sign that a capture is read wrongly."""
_CAUSES: Final = {
    "dlc is not the number of bytes": "short rows may be filled up, or bytes joined in one cell",
    "a byte is not two hexadecimal digits": "a program for tables may have written bytes as numbers: 05 as 5",
    "id is not 1 to 8 hexadecimal digits": "a program for tables may have written ids as numbers: 1E5 as 100000",
    "id is not 3 or 8 hexadecimal digits": "ids may have lost their leading zeros",
    "payload of an odd number of digits": "payloads may have lost their leading zeros",
    "timestamp is not a decimal number": "times may be dates, or have a decimal comma",
    "another number of fields": "fields may be missing, or a comment or a second header may be in it",
    "CAN FD frame, which this graphmill does not read": "it was recorded on a bus with CAN FD",
}


def refuse_bad_lines(file: Path, num_frames: int, problems: Problems, options: CapturePrepareOptions) -> None:
    """`UserError` if a sort of problem has more than the share `bad_lines` of the lines, or takes labelled attacks."""
    num_lines = num_frames + problems.num_lines
    many = {
        kind: count
        for kind, count in problems.counts.items()
        if kind not in _LEGAL and count > options.bad_lines * num_lines
    }
    if many:
        worst = max(many, key=many.__getitem__)
        cause = f"; {_CAUSES[worst]}" if worst in _CAUSES and 2 * many[worst] > problems.num_lines else ""
        raise UserError(
            f"{file}: {many[worst]:,} of {num_lines:,} lines give no frame: {worst}, first in line"
            f" {problems.first_lines[worst]}{cause}",
            fix=f"mend the capture; or leave these lines out: -o bad_lines={_share(many[worst], num_lines)}",
        )
    if problems.lost_attacks and "bad_lines" not in options.model_fields_set:
        raise UserError(
            f"{file}: {problems.lost_attacks:,} lines that are labelled as attacks give no frame ({problems})",
            fix=f"mend them; or leave them out: -o bad_lines={options.bad_lines:g}",
        )


def _share(count: int, of: int) -> str:
    """Smallest share in hundredths that allows `count` of them."""
    return f"{min(math.ceil(100 * count / of), 50) / 100:g}"
