"""The toys as they are compiled, for `python -m kernel_checks ptxas toy_variants.py:FUNCTION`."""

from toys import doubled, one_at_a_time, spilled

from kernel_checks.cubins import Variant


def right() -> list[Variant]:
    signature = {"x": "*fp32", "out": "*fp32", "size": "i32"}
    return [
        Variant(f"doubled {capability}", doubled, signature, {"BLOCK": 1024}, capability, {"num_warps": 4})
        for capability in (80, 90, 100)
    ]


def spills() -> list[Variant]:
    signature = {"x": "*fp32", "out": "*fp32", "rows": "i32"}
    return [Variant("spilled", spilled, signature, {"size": 128}, 90, {"num_warps": 1})]


def waits() -> list[Variant]:
    signature = {"following": "*i32", "out": "*i32", "steps": "i32"}
    return [Variant("one at a time", one_at_a_time, signature, {}, 90)]
