"""Runs inside a dev cluster: a JSON line in, the command is run, a JSON line out. The cluster ends with its input."""

import json
import subprocess
import sys


def main() -> None:
    print("ready", flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            done = subprocess.run(
                asked["command"], cwd=asked["cwd"], env=asked["environ"], stdin=subprocess.DEVNULL,
                capture_output=True, text=True, timeout=asked["timeout_s"], check=False,
            )  # fmt: skip
            answer = {"code": done.returncode, "out": done.stdout, "err": done.stderr}
        except subprocess.TimeoutExpired as error:
            answer = {"code": None, "out": (error.stdout or b"").decode(), "err": (error.stderr or b"").decode()}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
