"""hosts_of_a_run.py RUN HOSTS PER_HOST [BARE …]: the processes of a run on hosts with a network and a name each.

Run it in its own network, mount, uts and process namespace: it and all that it starts die together, and nothing
outside RUN is written. On the hosts with the numbers BARE the run's dataset has classes and splits alone.
"""

import json
import os
import secrets
import subprocess
import sys
from pathlib import Path

PORT = 29500


def sh(*command: str) -> None:
    subprocess.run(command, check=True)


def main(run: Path, hosts: int, per_host: int, bare: list[int]) -> list[int]:
    sh("mount", "--make-rprivate", "/")
    sh("mount", "-t", "tmpfs", "tmpfs", "/run")
    (run / "hosts").write_text("127.0.0.1 localhost\n" + "".join(f"10.79.0.{10 + i} host{i}\n" for i in range(hosts)))
    sh("mount", "--bind", str(run / "hosts"), "/etc/hosts")
    data = json.loads((run / "plan.json").read_text())["task"]["dataset"]["path"]
    labels = run / "labels"
    labels.mkdir()
    for name in ("metadata.json", "y.npy", "split.npy"):
        if (Path(data) / name).exists():
            sh("cp", "--preserve", f"{data}/{name}", str(labels))
    sh("ip", "link", "set", "lo", "up")
    sh("ip", "link", "add", "switch", "type", "bridge")
    sh("ip", "link", "set", "switch", "up")
    started, token = [], secrets.token_hex(16)
    for host in range(hosts):
        name = f"host{host}"
        sh("ip", "netns", "add", name)
        sh("ip", "link", "add", f"v{host}", "type", "veth", "peer", "name", "eth0", "netns", name)
        sh("ip", "link", "set", f"v{host}", "master", "switch", "up")
        sh("ip", "-n", name, "link", "set", "lo", "up")
        sh("ip", "-n", name, "addr", "add", f"10.79.0.{10 + host}/24", "dev", "eth0")
        sh("ip", "-n", name, "link", "set", "eth0", "up")
        hide = f"mount --bind {labels} {data} && " if host in bare else ""
        for local in range(per_host):
            own = {"RANK": host * per_host + local, "LOCAL_RANK": local, "LOCAL_WORLD_SIZE": per_host}
            own |= {
                "WORLD_SIZE": hosts * per_host,
                "MASTER_ADDR": "10.79.0.10",
                "MASTER_PORT": PORT,
                "GRAPHMILL_TOKEN": token,
            }
            environ = {**os.environ, **{key: str(value) for key, value in own.items()}}
            environ.pop("GLOO_SOCKET_IFNAME", None)
            work = f"hostname {name} && {hide}exec {sys.executable} -m graphmill.train.worker {run}"
            command = ["ip", "netns", "exec", name, "unshare", "--uts", "--mount", "sh", "-c", work]
            started.append(subprocess.Popen(command, env=environ))
    return [process.wait() for process in started]


if __name__ == "__main__":
    folder, *numbers = sys.argv[1:]
    hosts, per_host, *bare = map(int, numbers)
    sys.stdout.write(json.dumps(main(Path(folder), hosts, per_host, bare)))
