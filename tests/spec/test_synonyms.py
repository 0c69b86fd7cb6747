"""A suggested name is the one that was meant: typos find their key or none, and foreign names are known by heart."""

import pytest

from graphmill.base.errors import UserError
from graphmill.base.names import nearest
from graphmill.config.keys import keys_of
from graphmill.spec.flags import SHORT_FLAGS, parse_train_request
from graphmill.spec.kinds import all_kinds
from graphmill.spec.load import load_experiment
from graphmill.spec.synonyms import ALSO_CALLED


def sections(kind) -> dict[str, list[str]]:
    found: dict[str, set[str]] = {}
    for key in keys_of(kind.experiment):
        section, _, name = key.dotted.rpartition(".")
        found.setdefault(section, set()).add(name)
    return {section: sorted(names) for section, names in found.items()}


KEYS = sorted({tuple(names) for kind in all_kinds() for names in sections(kind).values()})


def typos(name: str) -> set[str]:
    """Every way to leave out, double, swap or add one letter."""
    return {
        typo
        for at in range(len(name))
        for typo in (
            name[:at] + name[at + 1 :],
            name[:at] + name[at] + name[at:],
            name[:at] + name[at + 1 : at + 2] + name[at] + name[at + 2 :],
            name[:at] + "x" + name[at:],
        )
    }


@pytest.mark.parametrize("names", KEYS, ids=lambda names: names[0])
def test_one_wrong_letter_finds_the_key_or_nothing(names):
    found = {(name, typo): nearest(typo, names) for name in names for typo in typos(name) - set(names)}
    assert not {typo: near for (name, typo), near in found.items() if near not in (name, None)}


@pytest.mark.parametrize("word", ["optimizer", "hidden_dim", "master_port", "amp", "log_dir", "verbose"])
def test_what_is_not_ours_is_likened_to_nothing(word):
    assert nearest(f"--{word}", [f"--{flag}" for flag in SHORT_FLAGS]) is None
    assert not [names for kind in all_kinds() for names in sections(kind).values() if nearest(word, names)]


def test_every_synonym_means_a_key_of_every_task_and_is_none_itself():
    for kind in all_kinds():
        keys = {key.dotted for key in keys_of(kind.experiment)}
        known = {".".join(key.split(".")[:depth]) for key in keys for depth in (1, 2, 3, 4)}
        assert set(ALSO_CALLED.values()) <= known
        assert not {f"train.{word}" for word in ALSO_CALLED} & known


@pytest.mark.parametrize(
    ("override", "meant"),
    [
        ("train.learning_rate=1", "train.optimizer.lr"),
        ("train.fanouts=[1]", "train.num_neighbors"),
        ("model.hidden_dim=8", "model.hidden_channels"),
    ],
)
def test_names_of_other_programs_are_translated(override, meant):
    with pytest.raises(UserError, match=f"is called {meant}\n.*write {meant}"):
        load_experiment("cora-sage", [override])


def test_the_width_of_a_forecaster_has_another_name():
    with pytest.raises(UserError, match=r"is called model\.rnn_units"):
        load_experiment("traffic-demo", ["model.hidden_dim=8"])


def test_flags_of_other_programs_are_translated():
    with pytest.raises(UserError, match="--lr …"):
        parse_train_request(["--learning-rate", "1"])
    with pytest.raises(UserError, match=r"-O train\.ranks=…"):
        parse_train_request(["--nproc_per_node=4"])
    with pytest.raises(UserError, match="-O KEY=VALUE"):
        parse_train_request(["--master_port", "1"])
