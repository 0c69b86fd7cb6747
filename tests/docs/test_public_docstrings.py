"""What a person calls says what it takes and what it gives, under the headings that tools read."""

import inspect

import pytest

import graphmill
import graphmill.assignment
import graphmill.nn.attention
from graphmill import pyg


def public() -> dict[str, object]:
    modules = [graphmill, graphmill.assignment, graphmill.nn.attention]
    if pytest.importorskip("torch_geometric"):
        modules.append(pyg)
    named = {f"{module.__name__}.{name}": getattr(module, name) for module in modules for name in module.__all__}
    layers = {f"{name}.forward": each.forward for name, each in named.items() if name.endswith("Conv")}
    return {name: each for name, each in named.items() if inspect.isfunction(each)} | layers


@pytest.mark.parametrize("heading", ["Args", "Returns"])
def test_functions_have_headings(heading):
    found = public()
    assert len(found) > 15
    without = []
    for name, function in found.items():
        signature = inspect.signature(function)
        takes = any(each != "self" for each in signature.parameters)
        is_layer = name.endswith(".forward")  # its first line is the shape of what it gives
        if (takes if heading == "Args" else not is_layer) and f"{heading}:\n" not in inspect.getdoc(function):
            without.append(name)
    assert not without
