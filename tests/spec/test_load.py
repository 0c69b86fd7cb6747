"""Experiment files and overrides: every problem at once, each with file, line, key and the nearest known name."""

import shlex
import typing
from pathlib import Path

import pytest

from graphmill.base.errors import UserError
from graphmill.spec.experiment import DeferredAllreduceSpec, DilocoSpec, LocalSgdSpec
from graphmill.spec.load import inline_experiment, load_experiment
from graphmill.spec.node_models import GraphSageSpec, NodeModelSpec
from graphmill.spec.optimizer import AdamSpec
from graphmill.tasks.link_prediction.page import LinkTrainSpec


@pytest.fixture
def file(tmp_path):
    def write(text: str) -> Path:
        path = tmp_path / "e.yaml"
        path.write_text(text)
        return path

    return write


def refusal(path: Path, *overrides: str) -> UserError:
    with pytest.raises(UserError) as refused:
        load_experiment(path, overrides)
    return refused.value


def test_a_file_and_overrides(file):
    path = file("name: mine\ntrain: {epochs: 3, optimizer: {lr: 1e-3}}\n")
    experiment = load_experiment(
        path, ["train.num_neighbors=[5, -1]", "dataset.name=planetoid/cora", "train.max_steps=40"]
    )
    assert experiment.name == "mine"
    assert experiment.train.epochs == 3
    assert experiment.train.optimizer.lr == 0.001
    assert experiment.train.num_neighbors == (5, -1)
    assert experiment.dataset.name == "planetoid/cora"


def test_a_residual_layer_needs_a_hidden_one_before_it(file):
    alone = refusal(file("model: {residual: true}\n"))
    assert all(part in str(alone) for part in ("residual", "num_layers to 3"))
    for more in ("num_layers: 3", "jumping_knowledge: max"):
        assert load_experiment(file(f"model: {{residual: true, {more}}}\n")).model.residual


def test_null_lifts_a_limit(file):
    assert (
        load_experiment(file("train: {epochs: 3}\n"), ["train.epochs=null", "train.max_steps=8"]).train.epochs is None
    )


def test_the_default_of_a_union_may_be_left_out(file):
    experiment = load_experiment(file("model: {hidden_channels: 8}\ntrain: {sync: {every: 4}}\n"))
    assert experiment.model == GraphSageSpec(hidden_channels=8)
    assert experiment.train.sync == DeferredAllreduceSpec(every=4)


def test_a_scheme_is_switched_by_override_and_shared_keys_stay(file):
    path = file("train:\n  sync: {scheme: deferred_allreduce, every: 4, payload: fp16}\n")
    assert load_experiment(path, ["train.sync.scheme=local_sgd"]).train.sync == LocalSgdSpec(
        scheme="local_sgd", every=4, payload="fp16"
    )
    assert load_experiment(path, ["train.sync.scheme=diloco", "train.sync.outer_lr=0.5"]).train.sync == DilocoSpec(
        scheme="diloco", every=4, payload="fp16", outer_lr=0.5
    )


def test_a_key_the_new_scheme_does_not_know_is_not_dropped_in_silence(file):
    path = file("train:\n  sync:\n    scheme: diloco\n    outer_lr: 0.5\n")
    error = refusal(path, "train.sync.scheme=local_sgd")
    assert error.message == (
        f"{path}:4: train.sync.outer_lr belongs to train.sync.scheme=diloco, but train.sync.scheme is local_sgd"
    )
    assert error.fix == (
        "in place of -O train.sync.scheme=local_sgd give the section whole: -O 'train.sync={scheme: local_sgd}'"
    )
    whole = error.fix.partition("-O '")[2].removesuffix("'")
    assert load_experiment(path, [whole]).train.sync == LocalSgdSpec(scheme="local_sgd")


def test_what_to_type_keeps_what_both_variants_know(file):
    cache = "{policy: presample, epochs: 2, ratio: 0.2, mib: 7}"
    path = file(f"partition: {{cache: {cache}}}\nmodel: {{hidden_channels: 4, num_layers: 2}}\n")
    said = str(refusal(path, "partition.cache.policy=lookahead"))
    assert "-O 'partition.cache={policy: lookahead, ratio: 0.2, mib: 7}'" in said
    assert "-O 'partition.cache={policy: none}'" in str(refusal(path, "partition.cache.policy=none"))
    said = str(refusal(path, "model.kind=custom", "model.target=mine.Model"))
    assert (
        "in place of -O model.kind=custom -O model.target=mine.Model give the section whole: -O"
        " 'model={kind: custom, target: mine.Model}'"
    ) in said
    load_experiment(path, ["partition.cache={policy: lookahead}", "model={kind: custom, target: mine.Model}"])
    load_experiment(path, ["partition.cache.policy=presample", "partition.cache.ratio=0.1"])


def test_what_the_same_command_line_contradicts_is_not_to_be_repeated(file):
    path = file("partition: {cache: {policy: vip}}\n")
    error = refusal(path, "partition.cache.policy=lookahead", "partition.cache.epochs=2")
    assert error.fix.startswith("remove partition.cache.epochs, or set partition.cache.policy=")


def test_a_section_is_replaced_as_a_whole(file):
    path = file("train:\n  sync: {scheme: diloco, outer_lr: 0.5}\n")
    assert load_experiment(path, ["train.sync={scheme: local_sgd}", "train.sync.every=2"]).train.sync == LocalSgdSpec(
        scheme="local_sgd", every=2
    )


@pytest.mark.parametrize(
    ("text", "message", "fix"),
    [
        (
            "train:\n  bach_size: 4\n",
            "{f}:2: train.bach_size is not a known key; did you mean 'batch_size'?",
            "write train.batch_size",
        ),
        (
            "batch_size: 4\n",
            "{f}:1: batch_size is not a known key; did you mean train.batch_size?",
            "write train.batch_size",
        ),
        (
            "zzzz: 4\n",
            "{f}:1: zzzz is not a known key; known: dataset, init_from, model, name, partition, roles, slurm, sources,"
            " staging, task, train",
            "remove zzzz",
        ),
        ("train:\n  epochs: four\n", '{f}:2: train.epochs is "four", but it takes a whole number > 0, or null', None),
        ("train:\n  epochs: 4.0\n", "{f}:2: train.epochs is 4.0, but it takes a whole number > 0, or null", None),
        ("train:\n  epochs: '4'\n", '{f}:2: train.epochs is "4", but it takes a whole number > 0, or null', None),
        ("train:\n  epochs: true\n", "{f}:2: train.epochs is true, but it takes a whole number > 0, or null", None),
        ("train:\n  ranks: 0\n", "{f}:2: train.ranks is 0, but it takes a whole number > 0, or auto", None),
        ("train:\n  ranks: autoo\n", '{f}:2: train.ranks is "autoo", but it takes', "set train.ranks=auto"),
        ("train:\n  optimizer:\n    lr: -1\n", "{f}:3: train.optimizer.lr is -1, but it takes a number > 0", None),
        ("train: 3\n", "{f}:1: train is 3, but it is a section of keys", "set its keys, for example train.ranks=auto"),
        (
            "train:\n  sync: local_sgd\n",
            '{f}:2: train.sync is "local_sgd", but it is a section of keys',
            "set its keys, for example train.sync.scheme=local_sgd",
        ),
        (
            "train:\n  sync:\n    scheme: local-sgd\n",
            '{f}:3: train.sync.scheme is "local-sgd", but it is one of',
            "set train.sync.scheme=local_sgd",
        ),
        (
            "model:\n  kind: gcn\n",
            '{f}:2: model.kind is "gcn", but it is one of graphsage, gat, gatv2, rgcn, rsage, hgt, sign, custom',
            "write model: {kind: custom, target: torch_geometric.nn.models.GCN, "
            "options: {hidden_channels: 64, num_layers: 2, dropout: 0.5}}",
        ),
        (
            "model:\n  target: a.B\n",
            "{f}:2: model.target belongs to model.kind=custom, but model.kind is graphsage",
            None,
        ),
        ("model:\n  kind: gatv2\n  headss: 2\n", "{f}:3: model.headss is not a known key", "write model.heads"),
        ("model:\n  kind: custom\n", "{f}:1: model.target is missing; it takes text", None),
        (
            "train:\n  num_neighbors: [5, x]\n",
            '{f}:2: train.num_neighbors[1] is "x", but it takes a whole number',
            None,
        ),
        ("train:\n  num_neighbors: 5\n", "{f}:2: train.num_neighbors is 5, but it takes a list of whole numbers", None),
        ("train:\n  num_neighbors: [5, 0]\n", "{f}:2: train.num_neighbors [5, 0] must hold positive fan-outs", None),
        (
            "train:\n  optimizer: {schedule: {kind: cosin}}\n",
            '{f}:2: train.optimizer.schedule.kind is "cosin", but it is one of',
            "set train.optimizer.schedule.kind=cosine",
        ),
        (
            "train:\n  lr: 0.1\n",
            "{f}:2: train.lr is not a known key; did you mean train.optimizer.lr?",
            "write train.optimizer.lr",
        ),
        ("name: a/b\n", '{f}:1: name is "a/b", but it takes text that matches', None),
        ("train:\n", "{f}:1: train is null, but it is a section of keys", None),
    ],
)
def test_one_problem(file, text, message, fix):
    path = file(text)
    error = refusal(path)
    assert error.message.startswith(message.format(f=path))
    assert fix is None or error.fix == fix


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.optimizer.lr", "-O train.optimizer.lr: is not of the form key=value"),
        ("=3", "-O =3: is not of the form key=value"),
        ("train..lr=3", "-O train..lr=3: is not of the form"),
        ("train lr=3", "-O train lr=3: is not of the form"),
        ("train.optimizer.lr=", "-O train.optimizer.lr=: gives train.optimizer.lr no value"),
        ("train.optimizer.lr=[", "-O train.optimizer.lr=[: not YAML"),
        ("train.optimizer.lr=*x", "-O train.optimizer.lr=*x: aliases (*x) are not read here"),
        ("train.optimizer.lr=!!python/name:os.system x", "carries the tag !!python"),
        ("train.epochs.deep=3", "-O train.epochs.deep=3: sets a key of train.epochs, but train.epochs holds a value"),
        ("train.sync.evry=3", "-O train.sync.evry=3: train.sync.evry is not a known key with train.sync.scheme="),
        ("trian.lr=3", "-O trian.lr=3: trian is not a known key; did you mean 'train'?"),
        ("sync.every=3", "-O sync.every=3: sync is not a known key; did you mean train.sync"),
        ("train.optimizer.lr=nan", '-O train.optimizer.lr=nan: train.optimizer.lr is "nan", but it takes a number > 0'),
        ("train.optimizer.lr=.nan", "only finite numbers"),
        ("train.seed=99999999999999999999", "which does not fit into 64 bits"),
        ("train.seed=-1", "train.seed is -1, but it takes a whole number ≥ 0 and < 2^63"),
        ("model.options.heads=4", "-O model.options.heads=4: model.options belongs to model.kind=custom"),
    ],
)
def test_one_wrong_override(file, override, message):
    assert message in refusal(file("train: {epochs: 3}\n"), override).message


def test_contradicting_overrides_are_refused_equal_ones_are_not(file):
    path = file("train: {epochs: 3}\n")
    assert load_experiment(path, ["train.optimizer.lr=0.1", "train.optimizer.lr=0.1"]).train.optimizer.lr == 0.1
    assert (
        "contradicts -O train.optimizer.lr=0.1"
        in refusal(path, "train.optimizer.lr=0.1", "train.optimizer.lr=0.2").message
    )
    error = refusal(path, "train.sync.every=4", "train.sync={scheme: diloco}")
    assert "contradicts -O train.sync.every=4" in error.message


def test_all_problems_at_once_in_the_order_of_lines(file):
    path = file("name: 7\ntrain:\n  bach_size: 4\n  optimizer: {lr: -1}\n  sync: {scheme: dilocoo}\n")
    message = refusal(path, "train.epochs=x", "nonsense").message
    assert message.startswith(f"6 problems in {path}:")
    places = [
        message.index(part)
        for part in (
            "-O nonsense",
            "train.epochs",
            ":1: name",
            ":3: train.bach",
            ":4: train.optimizer.lr",
            ":5: train.sync.scheme",
        )
    ]
    assert places == sorted(places)


def test_very_many_problems_are_cut(file):
    message = refusal(file("".join(f"key{n}: 1\n" for n in range(30)))).message
    assert message.startswith("30 problems")
    assert "… and 10 more" in message
    assert len(message.splitlines()) < 30


def test_strange_models_keep_their_options(file):
    path = file("model: {kind: custom, target: torch_geometric.nn.models.GCN, options: {num_layers: 2}}\n")
    experiment = load_experiment(path, ["model.options.hidden_channels=16"])
    assert experiment.model.options == {"num_layers": 2, "hidden_channels": 16}


def test_an_inline_experiment_is_named_in_messages():
    with pytest.raises(UserError, match=r"^study s: train\.bach is not a known key"):
        inline_experiment({"train": {"bach": 1}}, "study s")


def test_overrides_leave_what_they_are_laid_over_as_it_was():
    value = {"train": {"epochs": 1}}
    inline_experiment(value, "s", ["train.epochs=2", "train.sync.every=3"])
    assert value == {"train": {"epochs": 1}}


def test_a_study_is_not_an_experiment(file):
    assert "holds a study" in refusal(file("name: s\nvary: {train.optimizer.lr: [1]}\n")).message
    assert "graphmill study run" in refusal(file("name: s\nexperiment: cora-sage\n")).fix


def test_unknown_recipe_suggests(tmp_path, monkeypatch):
    from graphmill.spec import recipes

    (tmp_path / "cora-sage.yaml").write_text("# Cora, public split\nname: cora\n")
    monkeypatch.setattr(recipes, "recipes_folder", lambda: tmp_path)
    with pytest.raises(UserError, match=r"'cora-sge' is neither a YAML file nor a recipe; did you mean 'cora-sage'"):
        load_experiment("cora-sge")
    assert load_experiment("cora-sage").name == "cora"


def words_of_others() -> list[str]:
    members = typing.get_args(typing.get_args(NodeModelSpec)[0])
    return sorted(word for member in members for word in getattr(member, "called_elsewhere", {}))


@pytest.mark.parametrize("word", words_of_others())
def test_a_model_as_others_call_it_is_named_whole_and_that_is_read(file, word):
    told = refusal(file("train: {epochs: 1}\n"), f"model.kind={word}").fix
    flag, override = shlex.split(told.removeprefix("give ").partition(", or ")[0])
    assert flag == "-O"
    assert load_experiment(file("train: {epochs: 1}\n"), [override]).model.kind != word

    written = refusal(file(f"model:\n  kind: {word.upper()}\n  num_layers: 3\n")).fix.partition(", or ")[0]
    section = written.removeprefix("write ")
    model = load_experiment(file(f"train: {{epochs: 1}}\n{section}\n")).model
    assert "num_layers" not in section or 3 in (
        getattr(model, "num_layers", 0),
        *getattr(model, "options", {}).values(),
    )


@pytest.mark.parametrize(
    ("overrides", "lr"),
    [
        ([], 0.001),
        (["train.optimizer.weight_decay=0.1"], 0.001),
        (["train.optimizer={kind: adamw}"], 0.001),
        (["train.optimizer.lr=0.02"], 0.02),
        (["train.optimizer={kind: sgd, lr: 0.01}"], 0.01),
    ],
)
def test_links_have_a_learning_rate_of_their_own(file, overrides, lr):
    """Whatever else of the optimizer is given."""
    path = file("name: mine\ntask: link_prediction\n")
    assert load_experiment(path, overrides).train.optimizer.lr == lr
    assert load_experiment(file("name: mine\n"), ["train.optimizer.weight_decay=0.1"]).train.optimizer.lr == 0.01


def test_links_have_it_from_python_too():
    assert LinkTrainSpec(optimizer=AdamSpec(weight_decay=0.1)).optimizer.lr == 0.001
    assert LinkTrainSpec(optimizer=AdamSpec(lr=0.01)).optimizer.lr == 0.01
