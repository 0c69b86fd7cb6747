"""What stands in a kernel's machine code, as nvdisasm prints it."""

import re
from dataclasses import dataclass

# Loads that go to device memory: LDG, LD (generic), LDGSTS (into shared memory without registers).
_INSTRUCTION = re.compile(
    r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P[T0-9]+\s+)?(?P<name>[A-Z][A-Z0-9]*)(?P<options>(?:\.[A-Za-z0-9_]+)*)\s*(?P<rest>[^;]*);"
)
_SECTION = re.compile(r"^\.text\.(?P<name>[^:\s]+):")
_REGISTER = re.compile(r"\bR(\d+)(\.64)?")
_WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32}
_GLOBAL_LOADS = {"LDG", "LD"}


@dataclass(frozen=True, slots=True)
class Code:
    """Counts of a kernel's instructions, as they stand (a loop's once)."""

    instructions: int
    local_loads: int
    local_stores: int
    barriers: int
    shuffles: int
    global_loads: int
    global_stores: int
    atomics: int
    bytes_under_way: int  # of a thread, at most, of loads issued in order until one of their results is read; a model


def code_of(text: str) -> dict[str, Code]:
    """The code of each function in what `nvdisasm -c` prints."""
    found: dict[str, Code] = {}
    name, lines = "", list[str]()
    for line in text.splitlines():
        section = _SECTION.match(line)
        if section:
            if name:
                found[name] = _counted(lines)
            name, lines = section["name"], []
        else:
            lines.append(line)
    if name:
        found[name] = _counted(lines)
    return found


def _counted(lines: list[str]) -> Code:
    instructions = [match for match in map(_INSTRUCTION.search, lines) if match and match["name"] != "NOP"]
    names = [match["name"] for match in instructions]
    return Code(
        instructions=len(names),
        local_loads=names.count("LDL"),
        local_stores=names.count("STL"),
        barriers=names.count("BAR"),
        shuffles=names.count("SHFL"),
        global_loads=sum(name in _GLOBAL_LOADS or name == "LDGSTS" for name in names),
        global_stores=names.count("STG") + names.count("ST"),
        atomics=sum(name in {"ATOM", "ATOMG", "ATOMS", "RED", "REDG"} for name in names),
        bytes_under_way=_under_way(instructions),
    )


def _under_way(instructions: list[re.Match[str]]) -> int:
    """The most bytes of loads of which no result has been read yet: an instruction waits for what it reads.

    Instructions are taken as they stand, as if no branch were taken, and a load that is waited for lets all before it
    have come, too: loads are answered about in order. Loads into shared memory come by groups, which DEPBAR waits for.
    """
    pending: list[tuple[set[int], int]] = []
    groups, most = [0], 0
    for match in instructions:
        name, options, rest = match["name"], match["options"], match["rest"]
        written, read = _registers(match)
        for at in range(len(pending) - 1, -1, -1):
            if pending[at][0] & (read | written):
                del pending[: at + 1]
                break
        if name in _GLOBAL_LOADS:
            width = _width(options)
            pending.append((set(range(min(written), min(written) + max(1, width // 4))) if written else set(), width))
        elif name == "LDGSTS":
            groups[-1] += _width(options)
        elif name == "LDGDEPBAR":
            groups.append(0)
        elif name == "DEPBAR":
            left = int(rest.split(",")[-1], 0)  # so many groups may be under way still
            del groups[: max(0, len(groups) - 1 - left)]
        most = max(most, sum(size for _, size in pending) + sum(groups))
    return most


def _width(options: str) -> int:
    """Bytes that a thread loads."""
    return next((_WIDTHS[part] for part in options.split(".") if part in _WIDTHS), 4)


def _registers(match: re.Match[str]) -> tuple[set[int], set[int]]:
    """(written, read): the first operand is written, but by what stores; `.64` names a pair."""
    operands = match["rest"].split(",")
    stores = match["name"] in {"STG", "ST", "STS", "STL", "RED", "REDG", "BRA", "BAR"}
    at = 0
    while not stores and at < len(operands) - 1 and re.match(r"\s*!?U?P[T0-9]", operands[at]):
        at += 1  # predicates are written before the register
    written, read = set[int](), set[int]()
    for place, operand in enumerate(operands):
        into = written if not stores and place == at else read
        # An address in brackets is read even where it stands first.
        for number, pair in _REGISTER.findall(operand):
            into.update({int(number), int(number) + 1} if pair else {int(number)})
    if match["name"] not in _GLOBAL_LOADS:
        wide = 4 if "128" in match["options"] else 2 if "64" in match["options"] or "WIDE" in match["options"] else 1
        written = {number + more for number in written for more in range(wide)}
    return written, read
