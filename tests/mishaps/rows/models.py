"""Models, losses and tasks of one's own that do not fit: one sentence, or the person's own traceback and no other."""

from pathlib import Path
from typing import Any

from rows.mishap import Mishap

MODELS = """
import torch
from torch import nn


class Good(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.linear = nn.Linear(in_channels, out_channels)

    def forward(self, x, edge_index):
        return self.linear(x)


class Tuple(Good):
    def forward(self, x, edge_index):
        return self.linear(x), x


class Nothing(Good):
    def forward(self, x, edge_index):
        self.linear(x)


class Wide(Good):
    def __init__(self, in_channels, out_channels):
        super().__init__(in_channels, out_channels + 1)


class OneArgument(Good):
    def forward(self, x):
        return self.linear(x)


class Lazy(Good):
    def __init__(self, in_channels, out_channels):
        super().__init__(in_channels, out_channels)
        self.linear = nn.LazyLinear(out_channels)


class Untrained(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()

    def forward(self, x, edge_index):
        return x


class Detached(Good):
    def forward(self, x, edge_index):
        return self.linear(x).detach()


class NaN(Good):
    def forward(self, x, edge_index):
        return self.linear(x) * float("nan")


class Bug(Good):
    def forward(self, x, edge_index):
        raise ArithmeticError("the author's own bug")


class BuildBug(Good):
    def __init__(self, in_channels, out_channels):
        raise ArithmeticError("the author's own bug")


class Signature(nn.Module):
    def __init__(self, channels):
        super().__init__()


class Transposed(Good):
    def forward(self, x, edge_index):
        return self.linear(x).T


class Double(Good):
    def __init__(self, in_channels, out_channels):
        super().__init__(in_channels, out_channels)
        self.double()


def function(x, edge_index):
    return x


number = 7
"""


def bring(folder: Path) -> None:
    import sys

    sys.modules.pop("mymodels", None)
    (folder / "mymodels.py").write_text(MODELS)
    (folder / "broken.py").write_text("def f(:\n")
    (folder / "raising.py").write_text("WIDTH = 4\nprint(WITDH)\n")
    (folder / "needy.py").write_text("import no_such_package\n")


def model(target: str, *says: str, options: str = "{}", slow: bool = True, **more: Any) -> Mishap:
    words = f"train toy.yaml --run-id one -O 'model={{kind: custom, target: {target}, options: {options}}}'"
    left = ("mymodels.py", "broken.py", "needy.py", "raising.py", "__pycache__")
    return Mishap(f"model: {target} {options}", words, says, bring, slow=slow, leaves=left, **more)


ROWS = [
    model("mymodels.Tuple", "tuple", "tensor", slow=False),
    model("mymodels.Wide", "[4, ", "return"),
    model("mymodels.Bug", "the author's own bug", "mymodels.py, line 61", slow=False),
    model("mymodels.Nothing", "None"),
    model("mymodels.OneArgument", "TypeError", "(x, edge_index)"),
    model("mymodels.Lazy", "linear"),
    model("mymodels.Untrained", "no parameter to train"),
    model("mymodels.Detached", "depend on no parameter"),
    model("mymodels.NaN", "not finite"),
    model("mymodels.Transposed", "return"),
    model("mymodels.Double", "torch.float64"),
    model("mymodels.BuildBug", "the author's own bug", users_traceback=True),
    model("mymodels.Signature", "in_channels"),
    model("mymodels.Good", "hidden", options="{hidden: 4}"),
    model("mymodels.Good", "in_channels is 4", options="{in_channels: 4}"),
    model("mymodels.Goood", "Goood", "Good"),
    model("mymodels.number", "mymodels.number", "int"),
    model("mymodels.function", "mymodels.function"),
    model("broken.Model", "broken.py, line 1"),
    model("needy.Model", "no_such_package"),
    model("raising.Model", "raising.py, line 2", "NameError", "WITDH"),
    model("nomodule.Model", "nomodule"),
    model("Model", "Model", "dotted path"),
]
