from pathlib import Path

import pytest

from graphmill.base.errors import UserError
from graphmill.spec.flags import parse_train_request, split_short_flags

README_OF_SYNC_ABLATION = [
    *("--max_steps", "4000", "--batch_size", "1024", "--num_neighbors", "25", "10"),
    *("--sync_every", "1", "--sync_scheme", "deferred_allreduce"),
]


def test_the_originals_command():
    assert list(parse_train_request(README_OF_SYNC_ABLATION).overrides) == [
        "train.epochs=null",
        "train.max_steps=4000",
        "train.batch_size=1024",
        "train.num_neighbors=[25, 10]",
        "train.sync.every=1",
        "train.sync.scheme=deferred_allreduce",
    ]


def test_all_flags_in_both_spellings():
    words = [
        *("--epochs", "3", "--hidden-channels=64", "--num_layers", "3", "--dropout", ".1"),
        *("--lr", "1e-3", "--weight-decay", "0", "--seed", "7"),
    ]
    assert list(parse_train_request(words).overrides) == [
        "train.max_steps=null",
        "train.epochs=3",
        "model.hidden_channels=64",
        "model.num_layers=3",
        "model.dropout=.1",
        "train.optimizer.lr=1e-3",
        "train.optimizer.weight_decay=0",
        "train.seed=7",
    ]


def test_a_limit_lifts_the_other_one_unless_that_is_given_too():
    assert list(parse_train_request(["--max_steps", "8", "--epochs", "2"]).overrides) == [
        "train.max_steps=8",
        "train.epochs=2",
    ]
    assert split_short_flags(["--max_steps", "8"]).over(["train.epochs=5"]) == ["train.max_steps=8", "train.epochs=5"]


def test_fanouts_end_where_numbers_end():
    flags = split_short_flags(["--num_neighbors", "25", "-1", "cora.yaml", "--ranks", "2"])
    assert flags.overrides == ("train.num_neighbors=[25, -1]",)
    assert flags.rest == ("cora.yaml", "--ranks", "2")
    assert split_short_flags(["--num_neighbors=15,5"]).overrides == ("train.num_neighbors=[15, 5]",)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--max_stps", "3"], "did you mean '--max_steps'"),
        (["--batch_size"], "--batch_size has no value"),
        (["--batch_size", "--lr", "1"], "--batch_size has no value"),
        (["--num_neighbors"], "needs whole numbers"),
        (["--num_neighbors", "x"], "needs whole numbers"),
        (["--num_neighbors=a,b"], "needs whole numbers"),
        (["--lr", "1", "--lr", "2"], "--lr is given twice"),
    ],
)
def test_refusals(words, message):
    with pytest.raises(UserError, match=message):
        parse_train_request(words)


def test_the_command_line_of_torchruns_entry():
    request = parse_train_request(
        [
            "recipe",
            *README_OF_SYNC_ABLATION,
            "-O",
            "train.optimizer.lr=0.1",
            "--dataset_root",
            "/d",
            "--run-id=a",
            "--logs-root",
            "l",
            "--resume",
        ]
    )
    assert request.experiment == "recipe"
    assert request.overrides[-1] == "train.optimizer.lr=0.1"
    assert (request.dataset_root, request.logs_root) == (Path("/d"), Path("l"))
    assert (request.run_id, request.resume) == ("a", True)


def test_its_defaults():
    request = parse_train_request([])
    assert (request.experiment, request.overrides, request.dataset_root, request.run_id) == (None, (), None, None)
    assert not request.resume


@pytest.mark.parametrize("words", [["a", "b"], ["--rnk", "3"], ["-x"], ["--run-id"], ["--resume=yes"]])
def test_its_refusals(words):
    with pytest.raises(UserError):
        parse_train_request(words)
