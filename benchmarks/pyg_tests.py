"""PyG's own tests of loaders and samplers, with the import swapped: how many pass on graphmill's.

    python benchmarks/pyg_tests.py CHECKOUT

CHECKOUT is a checkout of PyG's repository at the version that is installed; nothing is fetched. What is changed in the
tests, in a temporary copy: the imports of loaders and samplers, marks that skip without pyg-lib, and the flags of
`torch_geometric.typing` that say whether it is there.
"""

import argparse
import ast
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

FILES: Final = (
    "loader/test_neighbor_loader.py",
    "loader/test_link_neighbor_loader.py",
    "loader/test_hgt_loader.py",
    "loader/test_shadow.py",
    "loader/test_dynamic_batch_sampler.py",
    "loader/test_imbalanced_sampler.py",
    "loader/test_zip_loader.py",
    "loader/test_mixin.py",
    "sampler/test_sampler_base.py",
    "sampler/test_sampler_neighbor_sampler.py",
)
OURS: Final = (
    *("NeighborLoader", "LinkNeighborLoader", "HGTLoader", "ShaDowKHopSampler"),
    *("NeighborSampler", "BidirectionalNeighborSampler"),
)
FLAGS: Final = ("WITH_PYG_LIB", "WITH_EDGE_TIME_NEIGHBOR_SAMPLE", "WITH_WEIGHTED_NEIGHBOR_SAMPLE")
IMPORT: Final = re.compile(
    r"^from torch_geometric\.(?:loader|sampler|sampler\.neighbor_sampler) import (?:\(([^)]*)\)|(.*))$", re.MULTILINE
)


def swapped(text: str) -> str:
    """A test file with graphmill's classes in place of PyG's, under their names."""

    def swap(found: re.Match[str]) -> str:
        names = [name.strip() for name in (found[1] or found[2]).split(",") if name.strip()]
        others = [name for name in names if name not in OURS]
        kept = found[0].split(" import ")[0] + " import " + ", ".join(others) + "\n" if others else ""
        ours = [name for name in names if name in OURS]
        return kept + (f"from graphmill.pyg import {', '.join(ours)}" if ours else "")

    text = IMPORT.sub(swap, text)
    text = re.sub(r"^@onlyNeighborSampler\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"^@withPackage\('pyg_lib'\)\n", "", text, flags=re.MULTILINE)
    text = text.replace("@withPackage('pyg_lib', ", "@withPackage(")
    for flag in FLAGS:
        text = text.replace(f"torch_geometric.typing.{flag}", "True")
    lines = text.splitlines()
    end = max(node.end_lineno or 0 for node in ast.parse(text).body if isinstance(node, ast.Import | ast.ImportFrom))
    lines.insert(end, " = ".join(FLAGS) + " = True")
    return re.sub(r"subgraph_type == (SubgraphType\.)?induced and not WITH_TORCH_SPARSE", "False", "\n".join(lines))


def main() -> int:
    """Run them; the exit status is pytest's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("pytest", nargs="*", help="more for pytest, after --")
    args = parser.parse_args()
    if not (args.checkout / "test" / "loader").is_dir():
        parser.error(f"{args.checkout} is no checkout of PyG: it has no test/loader")
    with tempfile.TemporaryDirectory() as name:
        shutil.copy(args.checkout / "test" / "conftest.py", name)
        for file in FILES:
            to = Path(name) / Path(file).name
            to.write_text(swapped((args.checkout / "test" / file).read_text(encoding="utf-8")), encoding="utf-8")
        command = [sys.executable, "-P", "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "--rootdir", name, name]
        return subprocess.run([*command, *args.pytest], cwd=name, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
