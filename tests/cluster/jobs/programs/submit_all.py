"""Inside a dev cluster: submit every script of a folder, wait for all, and write down what Slurm says of each job."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

folder = Path(sys.argv[1])
answers = {}
for script in sorted(folder.glob("*.sbatch")):
    command = ["sbatch", "--parsable", *sys.argv[2:], script]
    done = subprocess.run(
        command, capture_output=True, text=True, errors="replace", check=False, cwd=folder,
        env={**os.environ, "CASE": script.stem, "RECORD": str(folder / "record")},
    )  # fmt: skip
    answers[script.stem] = {"code": done.returncode, "said": done.stdout.strip(), "error": done.stderr}

if "--test-only" not in sys.argv:
    while subprocess.run(["squeue", "-h", "-o", "%i"], capture_output=True, check=True).stdout.strip():
        time.sleep(0.3)
    said = subprocess.run(["squeue", "--json", "-t", "all"], capture_output=True, check=True).stdout
    jobs = {str(job["job_id"]): job for job in json.loads(said.decode(errors="surrogateescape"))["jobs"]}
    for answer in answers.values():
        answer["job"] = jobs.get(answer["said"]) if isinstance(answer, dict) else None
(folder / "answers.json").write_text(json.dumps(answers))
