"""The file of attention: a row for each edge and layer, written part after part, whole or absent."""

import json

import numpy as np
import polars
import pytest

from graphmill.base.errors import UserError
from graphmill.spec.kinds.kind import ORIGIN
from graphmill.tasks.attended import Attended, Attention
from graphmill.train.predict import refuse_no_file, write_attention


def attention(parts: int = 3, *, broken: bool = False) -> Attention:
    rng = np.random.default_rng(0)

    def made():
        for layer in range(parts):
            alpha = rng.random((5, 2 if layer else 1)).astype(np.float32)  # one layer has fewer heads
            yield Attended(layer, (np.arange(5) + layer, np.arange(5)), alpha)
        if broken:
            raise ValueError("the model broke")

    return Attention(("source", "target"), 2, made())


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_rows_are_edges_in_layers(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    assert write_attention(attention(), path, {"run": "r"}) == 15
    table = polars.read_parquet(path) if suffix == "parquet" else polars.read_csv(path)
    assert table.columns == ["source", "target", "layer", "alpha_0", "alpha_1"]
    assert table["layer"].to_list() == [0] * 5 + [1] * 5 + [2] * 5
    assert table["source"].to_list() == [e + layer for layer in range(3) for e in range(5)]
    assert table["alpha_1"].null_count() == 5
    rng = np.random.default_rng(0)
    first = rng.random((5, 1)).astype(np.float32)[:, 0]
    assert np.array_equal(table["alpha_0"].to_numpy()[:5].astype(np.float32), first)
    if suffix == "parquet":
        assert json.loads(polars.read_parquet_metadata(path)[ORIGIN]) == {"run": "r"}


def test_a_file_is_whole_or_absent(tmp_path):
    path = tmp_path / "a.parquet"
    with pytest.raises(ValueError, match="the model broke"):
        write_attention(attention(broken=True), path, {})
    assert not list(tmp_path.iterdir())


def test_no_edge_at_all_is_a_table_without_rows(tmp_path):
    path = tmp_path / "a.parquet"
    assert write_attention(attention(0), path, {}) == 0
    assert polars.read_parquet(path).columns == ["source", "target", "layer", "alpha_0", "alpha_1"]


def test_what_cannot_be_written_is_refused(tmp_path):
    for output, attention_path, says in (
        (None, None, "neither --output nor --attention"),
        (None, tmp_path / "a.npz", "--attention .*npz"),
        (tmp_path / "a.txt", None, "--output .*txt"),
    ):
        with pytest.raises(UserError, match=says):
            refuse_no_file(output, attention_path)
