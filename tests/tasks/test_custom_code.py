"""What a target is, is looked at before it is called: nothing that starts processes or loads code can stand for one."""

import functools
import sys
from types import ModuleType

import pytest
import torch
from torch import nn

from graphmill.base.errors import UserError
from graphmill.spec.experiment import CustomModelSpec
from graphmill.spec.kinds import find_kind
from graphmill.spec.node_models import NodeCustomModelSpec
from graphmill.tasks.custom_code import find_function
from graphmill.tasks.custom_model import construct, try_out

ENTRY = {"entrypoint": "/bin/sh", "args": ["-c", "id"], "env": {}, "local_rank_id": 0}
NEVER = [
    "torch.hub.load",
    "os.system",
    "subprocess.run",
    "subprocess.Popen",
    "importlib.import_module",
    "builtins.eval",
    "torch.load",
    "torch.jit.load",
    "torch.utils.cpp_extension.load",
    "torch.distributed.elastic.multiprocessing.subprocess_handler.SubprocessHandler",
    "torch.distributed.launcher.api.elastic_launch",
    "torch.multiprocessing.spawn",
    "torch.nn.functional.handle_torch_function",
    "torch.nn.modules.module.Any",
    "psutil.Popen",
    "numpy.testing.run_module_suite",
]


@pytest.fixture
def mine(monkeypatch):
    """A module of the user's, with what was imported into it."""
    module = ModuleType("mine")

    class Net(nn.Module):
        def __init__(self, in_channels, out_channels):
            super().__init__()
            self.called = True

    class Handler:
        def __init__(self, **options):
            raise AssertionError("it was called")

    def make(in_channels, out_channels):
        return nn.Linear(in_channels, out_channels)

    def loss(outputs, truths):
        return (outputs - truths).abs()

    class Loss:
        def __call__(self, outputs, truths):
            return loss(outputs, truths)

    for each in (Net, Handler, make, loss, Loss):
        each.__module__ = "mine"
        setattr(module, each.__name__, each)
    import subprocess

    module.run, module.Popen = subprocess.run, subprocess.Popen
    module.disguised = functools.partial(subprocess.run, ["true"])
    module.half = functools.partial(loss, truths=0)
    module.made = nn.L1Loss(reduction="none")
    monkeypatch.setitem(sys.modules, "mine", module)
    return module


def model(target: str, options=None):
    spec = CustomModelSpec(kind="custom", target=target, options=options or {})
    return construct(spec, {"in_channels": 2, "out_channels": 3})


@pytest.mark.parametrize("target", [*NEVER, "mine.run", "mine.Popen", "mine.disguised", "mine.Handler", "mine.half"])
def test_it_is_no_model_and_not_called(mine, target):
    with pytest.raises(UserError, match=r"names a part of|makes no module|cannot be imported|has no"):
        model(target, ENTRY)


@pytest.mark.parametrize("target", [*NEVER, "mine.run", "mine.Popen", "mine.disguised", "mine.Handler"])
def test_it_is_no_loss_and_not_called(mine, target):
    with pytest.raises(UserError, match=r"names a part of|cannot be called|cannot be imported|has no"):
        find_function("train.loss", target, ENTRY, fix="another")


def test_classes_of_modules_and_functions_that_make_one_are_models(mine):
    assert model("mine.Net").called
    assert isinstance(model("mine.make"), nn.Linear)
    with pytest.raises(UserError, match="in_features"):
        model("torch.nn.Linear")


@pytest.mark.parametrize(
    ("target", "options"),
    [
        ("mine.loss", {}),
        ("mine.Loss", {}),
        ("mine.half", {}),
        ("mine.made", {}),
        ("torch.nn.L1Loss", {"reduction": "none"}),
        ("torch.nn.functional.l1_loss", {"reduction": "none"}),
        ("torch.nn.functional.cosine_similarity", {}),
    ],
)
def test_functions_and_classes_of_callables_are_losses(mine, target, options):
    assert callable(find_function("train.loss", target, options, fix=""))


def test_a_function_that_torch_compiled_is_a_loss(mine):
    mine.compiled = torch.jit.script(torch.nn.functional.relu)
    assert callable(find_function("train.loss", "mine.compiled", {}, fix=""))


@pytest.mark.parametrize(
    "take",
    [lambda: model("in_the_run.Model"), lambda: find_kind("in_the_run:KIND")],
    ids=["model", "task"],
)
def test_code_in_a_run_folder_is_not_imported(new_run, monkeypatch, tmp_path, take):
    folder, _ = new_run()
    marker = tmp_path / "executed"
    (folder.path / "in_the_run.py").write_text(f"open({str(marker)!r}, 'w')\nclass Model: pass\n")
    monkeypatch.syspath_prepend(folder.path)
    with pytest.raises(UserError, match="inside the run folder"):
        take()
    assert not marker.exists()


@pytest.mark.parametrize(
    ("target", "place", "search"),
    [
        ("without_init.mine.Model", "without_init/mine.py", "."),  # a package of this kind has no origin
        ("without_init.inner.mine.Model", "without_init/inner/mine.py", "."),
        ("copied_run.mine.Model", "mine.py", ".."),  # the run folder is the package
        ("above.copied_run.mine.Model", "mine.py", "../.."),  # or a part of one
        ("linked.Model", "", "."),  # a link in the run folder, to code outside
    ],
)
def test_nor_by_a_package_without_origin_nor_by_a_link(new_run, monkeypatch, tmp_path, target, place, search):
    folder, _ = new_run()
    (above := folder.path.with_name("above")).mkdir()
    run = folder.path.rename(above / "copied_run")
    marker = tmp_path / "executed"
    path = run / place if place else tmp_path / "linked.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"open({str(marker)!r}, 'w')\nclass Model: pass\n")
    if not place:
        (run / "linked.py").symlink_to(path)
    monkeypatch.syspath_prepend((run / search).resolve())
    with pytest.raises(UserError, match="inside the run folder"):
        model(target)
    assert not marker.exists()


@pytest.mark.parametrize("word", sorted(NodeCustomModelSpec.called_elsewhere))
def test_the_model_of_pyg_that_a_message_names_computes_logits(word):
    spec = NodeCustomModelSpec.model_validate(NodeCustomModelSpec.called_elsewhere[word])
    model = construct(spec, {"in_channels": 2, "out_channels": 3})
    edges = torch.tensor([[0, 1, 2], [1, 2, 0]])
    try_out(spec.target, model, {"x": torch.ones(3, 2), "edge_index": edges}, [(3, 3)])


def test_fused_layers_are_asked_for_and_told(caplog):
    pytest.importorskip("torch_geometric")
    given, filled_in = {"hidden_channels": 4, "num_layers": 2}, {"in_channels": 2, "out_channels": 3}

    def made(target: str, **options):
        spec = CustomModelSpec(kind="custom", target=target, options=options, fused=True)
        return construct(spec, filled_in)

    with caplog.at_level("INFO"):
        layers = made("torch_geometric.nn.GraphSAGE", **given).convs
        assert {type(layer).__module__ for layer in layers} == {"graphmill.pyg.layers"}
        assert not caplog.messages
        made("torch_geometric.nn.GraphSAGE", aggr="max", **given)
    # That a person sees it when a run is planned: tests/tasks/test_check_model.py.
    told = "PyG's own code computes convs.0 (SAGEConv with aggr=max), convs.1 (SAGEConv with aggr=max)"
    assert caplog.messages == [f"model.fused: {told} of torch_geometric.nn.GraphSAGE"]
    with pytest.raises(UserError, match=r"torch_geometric.nn.EdgeCNN has none of PyG's SAGEConv, GCNConv.*"):
        made("torch_geometric.nn.EdgeCNN", **given)
