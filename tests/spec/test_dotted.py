"""Dotted paths of a person's code, before anything is imported."""

import pytest

from graphmill.spec.dotted import may_import


@pytest.mark.parametrize(
    "target", ["Model", "", ":Model", ".Model", "nets..Model", "no_such_module:Model", "nets\0:Model"]
)
def test_a_path_that_names_no_module_imports_nothing(target):
    assert not may_import(target, "torch_geometric")


def test_a_file_that_mentions_a_package_may_import_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets.py").write_text("from torch_geometric.nn import GCN\n")
    assert may_import("nets:Model", "torch_geometric")
    assert may_import("torch_geometric.nn.GCN", "torch_geometric")
    assert not may_import("nets:Model", "no_such_package")
