"""What is written of trials: sums over kinds; what Slurm takes to notice, apart from what the ranks take to leave."""

from fault_tables import preemption
from headlines import faults_headline, preemption_headline

KIND = {"as_promised": 9, "identical": 10, "over_s": [1.0, 46.7], "gone_s": [1.0, 17.2]}


def test_a_job_that_lost_its_driver_is_told_apart():
    kinds = {"crashed": KIND, "crashed_first": {**KIND, "over_s": [440.0, 458.7], "gone_s": [15.0, 16.4]}}
    result = {"kinds": kinds, "num_trials": 20, "num_damaged_checkpoints": 0, "slurmd_timeout_s": 300}
    result["origins"] = {"all": {"argv": ["faults.py", "--trials", "10"]}}
    _, figure = faults_headline(result, "on Slurm")
    assert figure.startswith("18 of 20 trials of 2 kinds as promised, 20 bit-identical")
    assert "over within 47 s" in figure
    assert "ranks gone within 16 s, job over within 459 s (SlurmdTimeout 300)" in figure
    early = {**result, "origins": {"all": {"argv": ["faults.py", "--trials", "12"]}}}
    assert "18 of 20 trials (24 were asked for; ended early)" in faults_headline(early, "on Slurm")[1]
    _, without = faults_headline({**result, "kinds": {"crashed": KIND}}, "over SSH")
    assert without.endswith("over within 47 s")


def test_trials_of_all_kinds_are_summed_up():
    counted = {"trials": 20, "left_behind": 1, "left_over": 2, "doubled": 3, "most_steps_lost": 18}
    kinds = {"cancel": {"words": "preempted", **KIND, **counted}, "power": {"words": "powered off", **KIND, **counted}}
    _, figure = preemption_headline({"kinds": kinds})
    assert figure.startswith("18 of 40 trials of 2 kinds as promised, 20 bit-identical")
    assert figure.endswith("2 runs left behind, 4 jobs left over, 6 doubled")
    table = preemption({"kinds": kinds, "checkpoint_every_steps": 50, "away_s": 280.0, "origins": {}})
    assert "| powered off | 20 | 9 | 10 | 1 | 2 | 3 | 18 |" in table
