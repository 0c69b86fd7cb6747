"""What an SM of each architecture holds, and arithmetic with it: occupancy, and bytes that must be under way."""

from dataclasses import dataclass

_REGISTERS_OF_SM = 65536
_REGISTERS_AT_ONCE = 256  # a warp's registers are given out in such portions
_SHARED_OF_SYSTEM = 1024  # bytes of each program, taken by CUDA itself from 8.0 on


@dataclass(frozen=True, slots=True)
class Chip:
    """One GPU of an architecture; bandwidth and latency are what the model of bytes under way is made of."""

    name: str
    capability: int
    num_sms: int
    warps: int  # an SM, at most
    programs: int  # an SM, at most
    shared: int  # bytes an SM
    bandwidth: float  # bytes a second
    latency: float = 0.7e-6  # seconds from a load to its bytes, under load: an assumption of the model

    @property
    def bytes_needed(self) -> float:
        """Bytes that must be under way in an SM to use the whole bandwidth (Little's law); a model."""
        return self.bandwidth * self.latency / self.num_sms


# From NVIDIA's data sheets and the table of compute capabilities in the CUDA C++ programming guide.
CHIPS = {
    80: Chip("A100 80 GB", 80, 108, 64, 32, 164 * 1024, 2.04e12),
    90: Chip("H100 SXM", 90, 132, 64, 32, 228 * 1024, 3.35e12),
    100: Chip("B200", 100, 148, 64, 32, 228 * 1024, 8.0e12),
}


def resident_programs(chip: Chip, warps: int, registers: int, shared: int) -> int:
    """How many programs (blocks) an SM holds at once.

    Args:
        chip: the GPU.
        warps: of a program.
        registers: of a thread.
        shared: bytes of shared memory of a program, static and dynamic.

    Returns:
        0 where not even one fits.

    >>> resident_programs(CHIPS[90], 4, 255, 0), resident_programs(CHIPS[90], 1, 40, 0)
    (2, 32)
    """
    of_warp = -(-registers * 32 // _REGISTERS_AT_ONCE) * _REGISTERS_AT_ONCE
    by_registers = _REGISTERS_OF_SM // max(1, of_warp * warps)
    by_shared = chip.shared // (shared + _SHARED_OF_SYSTEM)
    return min(chip.programs, chip.warps // warps, by_registers, by_shared)


def occupancy(chip: Chip, warps: int, registers: int, shared: int) -> float:
    """Resident warps over those that an SM could hold.

    >>> occupancy(CHIPS[90], 4, 255, 0), occupancy(CHIPS[90], 1, 40, 0)
    (0.125, 0.5)
    """
    return resident_programs(chip, warps, registers, shared) * warps / chip.warps
