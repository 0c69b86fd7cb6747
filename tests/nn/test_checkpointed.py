"""Activation checkpointing: no bit differs, and less is held."""

import weakref

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode

from graphmill.graph.batch import Block, GraphBatch
from graphmill.graph.sampled import EvaluationSeeds, SeedIds
from graphmill.nn.attention import group_edges
from graphmill.nn.graph_attention import GraphAttention
from graphmill.nn.node_attention import NodeAttention
from graphmill.nn.standardise import Standardise
from graphmill.tasks.graph_classification.page import GraphAttentionSpec
from graphmill.tasks.intrusion.nn.gat import CanGat
from graphmill.tasks.intrusion.nn.reference import Reference
from graphmill.tasks.intrusion.nn.vgae import CanVgae, ErrorWeights
from graphmill.tasks.intrusion.page.models import CanGatSpec, CanVgaeSpec

NODES, GRAPHS, EDGES, FEATURES, EDGE_DIM = 300, 6, 2000, 12, 11
HEADS, CHANNELS, LAYERS = 2, 8, 4
SHAPE = {"hidden_channels": CHANNELS, "heads": HEADS}
MODELS = ["node", "graph", "gat", "vgae"]


@pytest.fixture(scope="module")
def batch() -> GraphBatch:
    """Windows as the models of the CAN bus read them: an id in the first two columns, then 10 features."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(NODES, FEATURES, generator=generator)
    x[:, :2] = torch.randint(100, (NODES, 2), generator=generator).float()
    edges = torch.randint(NODES, (2, EDGES), generator=generator)
    groups = group_edges(edges, NODES, NODES, 0)
    indptr, sources, _, out_indptr, _, slots = groups.tensors
    offsets = torch.arange(0, NODES + 1, NODES // GRAPHS)
    attr, labels = torch.rand(EDGES, EDGE_DIM, generator=generator), torch.zeros(GRAPHS, dtype=torch.int64)
    seeds = EvaluationSeeds(SeedIds(torch.arange(GRAPHS).numpy()))
    return GraphBatch(seeds, offsets, Block(indptr, sources), Block(out_indptr, slots), x, attr, labels)


def model_of(name: str, *, form: str, checkpointed: bool) -> nn.Module:
    torch.manual_seed(0)
    switches = {"attention": form, "checkpoint_activations": checkpointed, "dropout": 0.3}
    layers = {"num_layers": LAYERS, "attention_dropout": 0.2, **SHAPE}
    known = {"nodes": Standardise.unknown(FEATURES - 2), "edges": Standardise.unknown(EDGE_DIM)}
    known["reference"] = Reference.unknown()
    ids = {"id_channels": 4, "id_rows": 64, "id_dropout": 0.1}
    of_features = {"in_channels": FEATURES, "out_channels": 3, "edge_dim": EDGE_DIM}
    match name:
        case "node":
            return NodeAttention(kind="gatv2", **of_features, **layers, **switches)
        case "graph":
            return GraphAttention(kind="gat", **of_features, **layers, **switches)
        case "gat":
            return CanGat(kind="gatv2", fc_layers=2, **known, **ids, **layers, **switches)
    weights = ErrorWeights(ids=0.1, following=0.1, kl=0.1)
    rest = {"latent_channels": 4, "id_buckets": 8, "weights": weights, "score": "max"}
    return CanVgae(kind="gat", hidden_channels=32, heads=HEADS, **known, **ids, **rest, **switches)


def loss_of(model: nn.Module, batch: GraphBatch) -> Tensor:
    torch.manual_seed(1)
    if isinstance(model, NodeAttention):
        return model(batch.x, batch.edge_index, batch.edge_attr).square().sum()
    if isinstance(model, CanVgae):
        return model.losses(batch, model(batch)).sum()
    return model(batch).square().sum()


@pytest.fixture
def one_thread():
    """Of several, torch's own sums over edges differ from run to run."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("form", ["fused", "reference"])
@pytest.mark.parametrize("name", MODELS)
def test_no_bit_of_the_weights_differs(name, form, batch):
    found = []
    for checkpointed in (False, True):
        model = model_of(name, form=form, checkpointed=checkpointed)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(3):
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            optimizer.step()
        found.append([*model.state_dict().values(), torch.rand(3)])  # and as many draws were made
    assert all(map(torch.equal, *found))


def kept_bytes(model: nn.Module, batch: GraphBatch) -> int:
    """What the graph of a loss holds besides parameters and the batch itself."""
    own = {each.untyped_storage().data_ptr() for each in (*model.parameters(), batch.x, batch.edge_attr)}
    held: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        held[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = loss_of(model, batch)
    assert loss.requires_grad
    return sum(size for at, size in held.items() if at not in own)


@pytest.mark.parametrize("form", ["fused", "reference"])
@pytest.mark.parametrize("name", MODELS)
def test_less_is_kept_for_the_backward_pass(name, form, batch):
    every, few = (kept_bytes(model_of(name, form=form, checkpointed=is_on), batch) for is_on in (False, True))
    assert few < every / 2


class CachedRows(TorchDispatchMode):
    """The most bytes that tensors made meanwhile hold at a time."""

    now = most = 0

    def __init__(self) -> None:
        super().__init__()
        self.known: set[int] = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for each in made if isinstance(made, (tuple, list)) else [made]:
            if isinstance(each, Tensor) and each.untyped_storage().data_ptr() not in self.known:
                self._take(each.untyped_storage())
        return made

    def _take(self, storage: torch.UntypedStorage) -> None:
        at, size = storage.data_ptr(), storage.nbytes()
        self.known.add(at)
        self.now += size
        self.most = max(self.most, self.now)
        weakref.finalize(storage, self._leave, at, size)

    def _leave(self, at: int, size: int) -> None:
        self.known.discard(at)
        self.now -= size


@pytest.mark.parametrize("name", MODELS)
def test_the_peak_of_a_step_is_lower(name, batch):
    most = {}
    for checkpointed in (False, True):
        model = model_of(name, form="reference", checkpointed=checkpointed)
        with CachedRows() as held:
            loss_of(model, batch).backward()
        most[checkpointed] = held.most
    assert most[True] < most[False] * (0.75 if name == "vgae" else 0.6)


def test_the_formula_counts_what_is_kept(batch):
    """What layers are given by others, exactly, where the rest that is kept depends on no channel: grouped edges."""
    width = GraphAttentionSpec(kind="gat", num_layers=LAYERS, **SHAPE).width
    kept = kept_bytes(model_of("graph", form="fused", checkpointed=True), batch)
    assert 0 <= kept - 4 * NODES * (LAYERS - 1) * width < 20 * (NODES + EDGES)


@pytest.mark.parametrize("spec", [CanGatSpec(), CanVgaeSpec(kind="vgae")])
def test_models_of_windows_are_told_to_need_less(spec):
    less = spec.model_copy(update={"checkpoint_activations": True})
    assert less.activation_bytes(10_000, 40_000) < spec.activation_bytes(10_000, 40_000) * 0.75
    assert less.num_parameters == spec.num_parameters
