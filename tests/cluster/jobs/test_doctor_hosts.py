"""`doctor --hosts`: a real job that looks at its hosts, each in a network namespace of its own."""

import json
import sys

import pytest

# Starts graphmill, interrupts it when its job waits in the queue, and prints how it ended and what the queue held.
INTERRUPTED = """
import json, signal, subprocess, sys, time
queue = ["squeue", "--noheader", "--name=graphmill-doctor-n1", "--format=%T", "--states=PENDING,RUNNING"]
asked = subprocess.Popen([sys.executable, "-m", "graphmill.cli", *sys.argv[1:]], stdout=subprocess.DEVNULL)
while not (state := subprocess.check_output(queue, text=True).strip()):
    assert asked.poll() is None
    time.sleep(0.1)
asked.send_signal(signal.SIGINT)
code = asked.wait()
print(json.dumps([code, state, subprocess.check_output(queue, text=True).strip()]))
"""
HOST2, HOST3 = "10.77.0.12", "10.77.0.13"


def named(answer) -> dict[str, dict]:
    return {finding["name"]: finding for finding in json.loads(answer.out)["findings"]}


def test_hosts_that_are_well(cluster, tmp_path):
    answer = cluster.graphmill("doctor", "--hosts", "2", "--site", "devcluster", "--json", cwd=tmp_path)
    findings = named(answer)
    assert answer.code == 0, answer.out + answer.err
    assert {name: found["result"] for name, found in findings.items() if found["result"] == "fail"} == {}
    report = json.loads(answer.out)["report"]
    assert report["expected"] == [host["host"] for host in report["hosts"]]
    assert all(len(host["all_reduces"]) == 2 and host["sees_files"] for host in report["hosts"])
    assert all(host["clock"] is not None for host in report["hosts"])


def test_a_dry_run_leaves_nothing(cluster, tmp_path):
    answer = cluster.graphmill("doctor", "--hosts", "2", "--site", "devcluster", "--dry-run", cwd=tmp_path)
    assert answer.code == 0, answer.err
    assert "--examine=" in answer.out
    assert "--nodes=2" in answer.out
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_ends_the_job_that_waits(cluster, tmp_path):
    words = ("doctor", "--hosts", "1", "--site", "devcluster", "--sbatch-arg=--begin=now+1hour")
    answer = cluster.run(sys.executable, "-c", INTERRUPTED, *words, cwd=tmp_path)
    assert answer.code == 0, answer.err
    code, waited, left = json.loads(answer.out)
    assert (code, waited, left) == (130, "PENDING", "")


@pytest.mark.slow
def test_hosts_that_do_not_reach_each_other_are_named(cluster, tmp_path):
    def on_host2(*words: str) -> None:
        done = cluster.run("srun", "--nodelist=host2", "--nodes=1", *words, cwd=tmp_path)
        assert done.code == 0, done.err

    on_host2("ip", "route", "add", "blackhole", f"{HOST3}/32")
    try:
        words = ("doctor", "--hosts", "3", "--site", "devcluster", "--sbatch-arg=--nodelist=host[1-3]", "--json")
        answer = cluster.graphmill(*words, cwd=tmp_path)
    finally:
        on_host2("ip", "route", "del", "blackhole", f"{HOST3}/32")
    assert answer.code == 1, answer.out + answer.err
    findings = named(answer)
    assert findings["rendezvous"]["result"] == "fail"
    assert "host2: " in findings["rendezvous"]["detail"]
    assert findings["hosts"]["result"] == "ok"
    assert "not tried" in findings["all-reduce"]["detail"]
