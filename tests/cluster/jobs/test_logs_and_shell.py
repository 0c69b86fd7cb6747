"""`logs --follow` and `shell`, of a job that runs on a real Slurm."""

import sys

FOLLOW = """
{graphmill} logs a --follow >out 2>err &
until grep -q 'epoch 2/' out; do kill -0 $!; sleep 0.1; done
{graphmill} shell a --host host1 --dry-run >command
script --quiet --return --command 'SHELL=/bin/hostname {graphmill} shell a --host host2' /dev/null >host </dev/null
{graphmill} shell a --host nowhere >>refused 2>&1 || echo $? >>refused
{graphmill} stop a
wait
"""


def test_a_log_is_followed_to_its_end_and_a_shell_opens_beside_the_ranks(cluster, toy, tmp_path):
    cluster.graphmill("submit", toy, "--run-id", "a", "--hosts", "2", "--epochs", "100000", cwd=tmp_path)
    script = FOLLOW.format(graphmill=f"{sys.executable} -m graphmill.cli")
    done = cluster.run("bash", "-uec", script, cwd=tmp_path)
    assert done.code == 0, done.out + done.err
    assert (tmp_path / "out").read_bytes() == (tmp_path / "logs" / "a" / "rank_0.log").read_bytes()
    assert "--overlap" in (tmp_path / "command").read_text()
    assert "host2" in (tmp_path / "host").read_text()  # a busy pty may echo how srun ends its input, as ^@ before it
    refused = (tmp_path / "refused").read_text()
    assert "host1, or host2" in refused
    assert refused.endswith("2\n")
