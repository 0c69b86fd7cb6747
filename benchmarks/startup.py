"""How long the submitting plane takes to start, and that it does so without torch.

python benchmarks/startup.py [--rounds 11]
"""

import argparse
import subprocess
import sys
import time

from harness import ForeignLoad, Spread, print_table, write_result
from origin import Origin

COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "import graphmill.cli": [sys.executable, "-c", "import graphmill.cli, sys; assert 'torch' not in sys.modules"],
    "graphmill --help": [sys.executable, "-m", "graphmill.cli", "--help"],
    "graphmill train --help": [sys.executable, "-m", "graphmill.cli", "train", "--help"],
    "import torch": [sys.executable, "-c", "import torch"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=11)
    options = parser.parse_args()
    origin = Origin.now()
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    watch = ForeignLoad()
    for _ in range(options.rounds):
        for name, command in COMMANDS.items():
            begin = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            seconds[name].append(time.perf_counter() - begin)
    cores = watch.cores()
    spreads = {name: Spread.of(values) for name, values in seconds.items()}
    print_table(
        f"seconds from start to end (quartiles); others used {cores:.2f} cores; the bar is 0.5 s",
        ["command", "s"],
        [[name, str(spread)] for name, spread in spreads.items()],
    )
    write_result("startup", {"rounds": options.rounds, "foreign_cores": cores, "seconds": spreads}, origin)


if __name__ == "__main__":
    main()
