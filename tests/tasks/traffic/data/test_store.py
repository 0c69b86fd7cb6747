"""The store: whole or absent, checked, and honest about what it holds."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rounding import Bounded, assert_near

from graphmill.base.errors import UserError
from graphmill.tasks.traffic.data.generate import generate
from graphmill.tasks.traffic.data.prepare import prepare_traffic
from graphmill.tasks.traffic.data.store import TrafficStore, write_traffic


def test_what_is_written_is_read(tmp_path: Path) -> None:
    raw = generate(num_sensors=5, num_steps=100)
    written = write_traffic(raw, tmp_path / "store")
    store = TrafficStore.open(tmp_path / "store")
    store.verify()
    assert store.metadata == written.metadata
    np.testing.assert_array_equal(store.values, raw.series.values)
    np.testing.assert_array_equal(store.timestamps, raw.series.timestamps)
    matrix = np.zeros((5, 5), np.float32)
    matrix[tuple(store.edge_index)] = store.edge_weight
    np.testing.assert_array_equal(matrix, raw.adjacency)


def test_the_scale_comes_from_training_steps_that_are_there(tmp_path: Path) -> None:
    raw = generate(num_sensors=5, num_steps=100, missing_share=0.3)
    raw.series.values[70:] = 1e4  # after the training steps: must not show
    metadata = write_traffic(raw, tmp_path / "store").metadata
    train = raw.series.values[:70].astype(np.float64)
    known = train[~np.isnan(train)]
    assert metadata.num_train_steps == 70
    assert_near(metadata.mean, Bounded.of(torch.from_numpy(known)).sum(0) / len(known), computed=torch.float64)
    # The mean of squares of float32 differences: two roundings to float32 of each. A root halves relative errors.
    assert_near(metadata.std, Bounded.of(known.std()).rounded(4))
    assert metadata.present_share == len(known) / train.size
    assert metadata.num_missing == np.count_nonzero(np.isnan(raw.series.values))


def test_generated_traffic_says_so(tmp_path: Path) -> None:
    store = prepare_traffic("synthetic/traffic", root=tmp_path, options={"num_steps": 50, "num_sensors": 3})
    assert store.metadata.synthetic
    assert store.metadata.source.startswith("synthetic")
    with pytest.raises(UserError, match="takes no colour"):
        prepare_traffic("synthetic/traffic", root=tmp_path, options={"colour": 1}, force=True)


def test_generated_traffic_is_a_function_of_its_seed() -> None:
    first, again, other = generate(seed=3), generate(seed=3), generate(seed=4)
    np.testing.assert_array_equal(first.series.values, again.series.values)
    assert (first.series.values != other.series.values).any()


def test_a_store_is_kept_unless_forced(tmp_path: Path, caplog) -> None:
    prepare_traffic("synthetic/traffic", root=tmp_path, options={"num_steps": 50})
    kept = prepare_traffic("synthetic/traffic", root=tmp_path)
    assert kept.metadata.num_steps == 50
    assert "prepared already" in caplog.messages[0]
    with pytest.raises(UserError, match="holds a prepared dataset"):
        prepare_traffic("synthetic/traffic", root=tmp_path, options={"num_steps": 60})


def damage_value(folder: Path) -> None:
    data = bytearray((folder / "values.npy").read_bytes())
    data[-1] ^= 1
    (folder / "values.npy").write_bytes(data)


def edit(folder: Path, **changes: object) -> None:
    path = folder / "metadata.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


DAMAGE = [
    (lambda f: (f / "values.npy").unlink(), "is missing"),
    (lambda f: (f / "values.npy").write_bytes((f / "values.npy").read_bytes()[:-4]), "bytes and should have"),
    (lambda f: edit(f, mean=0.0), "its checksum is"),
    (lambda f: edit(f, format_version="traffic/2"), "format version 'traffic/2', and this graphmill reads traffic/1"),
    (lambda f: edit(f, std=-1), "std"),
    (lambda f: (f / "metadata.json").write_text("{"), "cannot be read as JSON"),
    (lambda f: (f / "metadata.json").unlink(), "holds no prepared data"),
]


@pytest.mark.parametrize(("damage", "says"), DAMAGE)
def test_a_damaged_store_does_not_open(tmp_path: Path, damage, says: str) -> None:
    write_traffic(generate(num_sensors=5, num_steps=100), tmp_path / "store")
    damage(tmp_path / "store")
    with pytest.raises(UserError, match=says):
        TrafficStore.open(tmp_path / "store")


def test_a_flipped_bit_is_found(tmp_path: Path) -> None:
    store = write_traffic(generate(num_sensors=5, num_steps=100), tmp_path / "store")
    damage_value(tmp_path / "store")
    with pytest.raises(UserError, match="its checksum is"):
        store.verify()


def test_readings_without_spread_have_no_scale(tmp_path: Path) -> None:
    raw = generate(num_sensors=3, num_steps=50)
    series = replace(raw.series, values=np.full_like(raw.series.values, 60))
    with pytest.raises(UserError, match=r"every reading of the training steps is 60\.0"):
        write_traffic(replace(raw, series=series), tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_dcrnns_own_files(tmp_path: Path, shared: Path) -> None:
    week = prepare_traffic(
        "week",
        root=tmp_path,
        from_path=shared / "metr-la-week1.h5",
        options={"adjacency": str(shared / "adj_mx.pkl")},
    )
    same = prepare_traffic("same", root=tmp_path, from_path=shared / "metr_la_207sensors_week1.npz")
    assert week.metadata.num_edges == same.metadata.num_edges == 1722
    np.testing.assert_array_equal(week.values, same.values)
    assert prepare_traffic("lone", root=tmp_path, from_path=shared / "metr-la-week1.h5").metadata.num_edges == 0
    with pytest.raises(UserError, match="must hold one file of readings"):
        prepare_traffic("several", root=tmp_path, from_path=shared)
