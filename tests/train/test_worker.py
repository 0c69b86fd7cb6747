"""What a rank's process is like while it trains."""

import gc

import torch

from graphmill import _native
from graphmill.record.run_folder import RunFolder
from graphmill.runtime.rank import ALONE
from graphmill.spec.plan import MachineInfo, resolve
from graphmill.tasks.traffic.page import TrafficExperiment, TrafficInfo
from graphmill.train import worker


def test_garbage_is_collected_although_it_was_not_while_modules_were_imported(tmp_path, monkeypatch):
    facts = TrafficInfo(
        name="toy", path="/nowhere", checksum="0", synthetic=True, num_train=50, num_sensors=1, num_edges=1,
        num_steps=80, interval_s=300, unit="mph", num_val=10, num_test=10,
    )  # fmt: skip
    experiment = TrafficExperiment.model_validate({"train": {"epochs": 1, "threads": torch.get_num_threads()}})
    plan = resolve(experiment, machine=MachineInfo(num_cores=1, num_gpus=0), dataset=facts, run_id="run")
    folder = RunFolder.create(plan, tmp_path)
    monkeypatch.setattr(worker, "_run", lambda context, *, resume: 17 if gc.isenabled() else 0)
    monkeypatch.setattr(_native, "keep_freed_memory", lambda: None)  # of the whole process
    gc.disable()
    try:
        assert worker.work(folder, ALONE, resume=False) == 17
    finally:
        gc.enable()
        gc.unfreeze()
