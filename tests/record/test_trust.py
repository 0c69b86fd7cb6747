"""Code that a plan names runs only where the person who runs it named it."""

import json
import os
from pathlib import Path

import pytest

from graphmill.base.errors import UserError
from graphmill.record.run_folder import RunFolder
from graphmill.record.trust import refuse_foreign_model
from graphmill.spec.experiment import CustomModelSpec
from graphmill.spec.kinds import find_kind
from graphmill.spec.kinds.node_classification import NodeClassificationExperiment
from graphmill.tasks.custom_model import construct

OTHER_UID = 54321


@pytest.fixture
def custom_run(planner, tmp_path):
    train = {"ranks": 1, "epochs": 1, "batch_size": 10}
    model = {"kind": "custom", "target": "evil.Model"}
    plan = planner(NodeClassificationExperiment.model_validate({"model": model, "train": train}), "run")
    return RunFolder.create(plan, tmp_path), plan


def test_ones_own_plan_is_trusted(custom_run):
    refuse_foreign_model(*custom_run, (), {})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_another_users_plan_needs_the_model_named(custom_run, new_run):
    folder, plan = custom_run
    os.chown(folder.plan_path, OTHER_UID, OTHER_UID)
    with pytest.raises(UserError, match=str(OTHER_UID)) as refused:
        refuse_foreign_model(folder, plan, ["other.Model"], {"GRAPHMILL_TRUST_MODELS": "a.B,c.D"})
    assert "--trust evil.Model" in refused.value.fix
    refuse_foreign_model(folder, plan, ["evil.Model"], {})
    refuse_foreign_model(folder, plan, (), {"GRAPHMILL_TRUST_MODELS": "a.B,evil.Model"})
    built_in, its_plan = new_run(run_id="built-in")
    os.chown(built_in.plan_path, OTHER_UID, OTHER_UID)
    refuse_foreign_model(built_in, its_plan, (), {})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_the_task_of_another_users_plan_is_imported_only_where_it_is_named(new_run, tmp_path, monkeypatch):
    folder, _ = new_run(run_id="foreign")
    plan = json.loads(folder.plan_path.read_text())
    plan["task"]["kind"] = "strange_page:KIND"
    folder.plan_path.write_text(json.dumps(plan))
    (tmp_path / "strange_page.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w')")
    monkeypatch.syspath_prepend(tmp_path)
    os.chown(folder.plan_path, OTHER_UID, OTHER_UID)
    with pytest.raises(UserError, match="strange_page:KIND") as refused:
        folder.read_plan()
    assert "GRAPHMILL_TRUST_MODELS=strange_page:KIND" in refused.value.fix
    assert not (tmp_path / "imported").exists()
    monkeypatch.setenv("GRAPHMILL_TRUST_MODELS", "strange_page:KIND")
    with pytest.raises(UserError, match="has no 'KIND'"):
        folder.read_plan()
    assert (tmp_path / "imported").exists()


@pytest.mark.parametrize("target", ["torch.hub.load", "os.system", "subprocess.run", "importlib.import_module"])
def test_what_loads_code_is_no_model(target):
    with pytest.raises(UserError, match="names a part of"):
        construct(CustomModelSpec(kind="custom", target=target), {})


@pytest.mark.parametrize(
    "take",
    [
        lambda: construct(CustomModelSpec(kind="custom", target="in_the_run.Model"), {}),
        lambda: find_kind("in_the_run:KIND"),
    ],
    ids=["model", "task"],
)
def test_code_in_a_run_folder_is_not_imported(new_run, monkeypatch, tmp_path, take):
    folder, _ = new_run()
    marker = tmp_path / "executed"
    Path(folder.path, "in_the_run.py").write_text(f"open({str(marker)!r}, 'w')\nclass Model: pass\n")
    monkeypatch.syspath_prepend(folder.path)
    with pytest.raises(UserError, match="inside the run folder"):
        take()
    assert not marker.exists()
