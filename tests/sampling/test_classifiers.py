"""Adapters: what people have becomes a classifier, and is given back as it came."""

import hashlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from safetensors.torch import save_file
from torch import nn

from buckler.errors import ClassifierError, InvalidInput
from buckler.sampling.architectures import build
from buckler.sampling.classifiers import Normalized, as_classifier
from buckler.sampling.models import call_factory, resolve_model
from buckler.sampling.weights import read_weights
from buckler.types import AnyArray
from tests.sampling.test_engine import draw_counts

torch.set_num_threads(1)

X = np.random.default_rng(0).random((3, 1, 4, 4)).astype(np.float32)
IDS = ["a", "b", "c"]
DRAW: dict[str, Any] = {"sigma": 0.5, "n": 200, "seed": 0, "stream": "estimation", "input_id": IDS}


def network(num_classes: int = 3) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.BatchNorm1d(8), nn.Dropout(0.9), nn.Linear(8, num_classes))


def onnx_file(path: Path, weight: AnyArray, classes: int = 3) -> Path:
    nodes = [
        helper.make_node("Flatten", ["x"], ["flat"], axis=1),
        helper.make_node("MatMul", ["flat", "w"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes,
        "linear",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 1, 4, 4])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", classes])],
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, path)
    return path


def test_a_module_shared_by_two_calls_at_once_stays_in_eval_mode_until_both_are_done() -> None:
    """As two threads would: the first that ends must not put dropout back under the draws of the other."""
    module = network().train()
    module[2].eval()
    modes = [part.training for part in module.modules()]
    whole, last = as_classifier(module), as_classifier(nn.Sequential(module[3], module[4]))  # which share two parts
    first, second = whole.session(), whole.session()
    first.__enter__()
    second.__enter__()
    with last.session():
        first.__exit__(None, None, None)
        assert not any(part.training for part in module.modules())
        second.__exit__(None, None, None)
        assert [part.training for part in module] == [True, True, False, False, False]
    assert [part.training for part in module.modules()] == modes


@pytest.mark.parametrize("norm", [nn.BatchNorm1d, nn.SyncBatchNorm])
def test_normalisation_over_the_batch_itself_is_refused(norm: Any) -> None:
    """What a row is answered would depend on the rows beside it: votes would not be independent draws of anything."""
    module = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), norm(8, track_running_stats=False), nn.Linear(8, 3))
    with pytest.raises(InvalidInput, match=r"part '2' .* over the rows of a batch"):
        as_classifier(module)
    as_classifier(nn.Sequential(nn.InstanceNorm2d(1), nn.Flatten(), nn.Linear(16, 3)))  # over one row: a function


def test_a_module_runs_in_eval_mode_without_gradients_and_is_restored() -> None:
    seen: list[tuple[bool, bool]] = []

    class Spy(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append((self.training, torch.is_grad_enabled()))
            return x

    inner = network()
    module = nn.Sequential(Spy(), inner)
    module.train()
    inner[2].eval()
    counts = draw_counts(module, X, **DRAW)
    assert counts.shape == (3, 3)
    assert set(seen) == {(False, False)}
    assert module.training
    assert inner.training
    assert not inner[2].training
    assert (counts == draw_counts(module, X, **DRAW)).all()  # dropout and batch statistics are off


def test_a_module_is_restored_after_an_error() -> None:
    class Broken(nn.Module):
        def forward(self, _: torch.Tensor) -> torch.Tensor:
            raise RuntimeError("broken")

    module = Broken()
    with pytest.raises(Exception, match="broken"):
        draw_counts(module, X, num_classes=3, **DRAW)
    assert module.training


def test_lower_precision_and_memory_format_leave_the_module_alone() -> None:
    module = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 3))
    before = {k: (v.dtype, v.stride(), v.clone()) for k, v in module.state_dict().items()}
    full = draw_counts(as_classifier(module), X, **DRAW)
    half = draw_counts(as_classifier(module, dtype="bfloat16", channels_last=True), X, **DRAW)
    assert (half.sum(axis=1) == 200).all()
    assert np.abs(full - half).max() < 20
    after = module.state_dict()
    assert all(after[k].dtype == d and after[k].stride() == s and after[k].equal(v) for k, (d, s, v) in before.items())


def test_normalisation_goes_inside() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    mean, std = [0.4], [0.2]
    inside = Normalized(module, mean, std)
    batch = torch.from_numpy(X)
    assert torch.allclose(inside(batch), module((batch - 0.4) / 0.2))
    assert {"mean", "std"} <= inside.state_dict().keys()

    def plain(x: AnyArray) -> AnyArray:
        return np.asarray(module(torch.from_numpy(np.asarray(x, dtype=np.float32))).detach())

    assert np.allclose(Normalized(plain, mean, std)(X), inside(batch).detach().numpy(), atol=1e-5)
    assert (draw_counts(inside, X, **DRAW) == draw_counts(Normalized(plain, mean, std), X, num_classes=3, **DRAW)).all()
    for wrong in ([0.0], [-1.0], [[1.0]]):
        with pytest.raises(InvalidInput):
            Normalized(module, mean, wrong)


def test_an_onnx_file_for_one_batch_size_is_run_at_it(tmp_path: Path) -> None:
    weight = np.random.default_rng(0).normal(size=(16, 3)).astype(np.float32)
    path = onnx_file(tmp_path / "net.onnx", weight)
    model = onnx.load(path)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 5
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 5
    onnx.save(model, tmp_path / "five.onnx")
    x = np.random.default_rng(1).normal(size=(13, *onnx_shape(model))).astype(np.float32)
    free, fixed = as_classifier(path), as_classifier(tmp_path / "five.onnx")
    for rows in (1, 4, 5, 13):
        np.testing.assert_allclose(fixed(x[:rows]), free(x[:rows]), rtol=1e-5)


def onnx_shape(model: Any) -> tuple[int, ...]:
    return tuple(d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim)[1:]


@pytest.mark.parametrize("zipmap", [True, False])
def test_probabilities_of_an_onnx_file_with_labels_become_logits(tmp_path: Path, zipmap: bool) -> None:
    """As skl2onnx writes a logistic regression: labels first, then probabilities, as maps or as a table."""
    weight = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    nodes = [
        helper.make_node(
            "LinearClassifier", ["x"], ["label", "table"], domain="ai.onnx.ml", coefficients=weight.ravel().tolist(),
            intercepts=[0.0, 0.1, 0.2], classlabels_ints=[0, 1, 2], post_transform="SOFTMAX",
        )
    ]  # fmt: skip
    kind: Any = helper.make_tensor_value_info("table", TensorProto.FLOAT, [None, 3])
    if zipmap:
        nodes.append(helper.make_node("ZipMap", ["table"], ["maps"], domain="ai.onnx.ml", classlabels_int64s=[0, 1, 2]))
        value = helper.make_tensor_type_proto(TensorProto.FLOAT, [])
        mapped = helper.make_sequence_type_proto(helper.make_map_type_proto(TensorProto.INT64, value))
        kind = helper.make_value_info("maps", mapped)
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 4])],
        [helper.make_tensor_value_info("label", TensorProto.INT64, [None]), kind],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    path = tmp_path / "sk.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    classifier = as_classifier(path)
    assert classifier.num_classes == 3
    x = np.random.default_rng(1).normal(size=(6, 4)).astype(np.float32)
    logits = x @ weight.T + np.array([0.0, 0.1, 0.2])
    expected = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(classifier(x), expected, rtol=1e-4, atol=1e-5)


def test_an_onnx_file_votes_as_numpy_does(tmp_path: Path) -> None:
    weight = np.random.default_rng(2).normal(size=(16, 3)).astype(np.float32)
    classifier = as_classifier(onnx_file(tmp_path / "net.onnx", weight))
    assert classifier.num_classes == 3
    counts = draw_counts(classifier, X, **DRAW)
    direct = draw_counts(lambda b: b.reshape(len(b), -1) @ weight, X, num_classes=3, **DRAW)
    assert np.abs(counts - direct).max() <= 1
    with pytest.raises(InvalidInput, match=r"are for torch modules; got Classifier\(net.onnx\)"):
        resolve_model(str(tmp_path / "net.onnx"), device="cuda")
    (tmp_path / "broken.onnx").write_bytes(b"\x08\x01nonsense")
    for bad in ("broken.onnx", "missing.onnx"):
        with pytest.raises(InvalidInput, match="onnx"):
            as_classifier(tmp_path / bad)


@pytest.mark.parametrize("suffix", ["safetensors", "pt"])
def test_an_architecture_with_weights(tmp_path: Path, suffix: str) -> None:
    module = build("small_conv", 7)
    path = tmp_path / f"weights.{suffix}"
    state = module.state_dict()
    if suffix == "safetensors":
        save_file(state, path)
    else:
        torch.save({"state_dict": {f"module.{k}": v for k, v in state.items()}}, path)
    classifier = resolve_model(f"small_conv:{path}")
    assert classifier.num_classes == 7
    assert classifier.files == {path.name: hashlib.sha256(path.read_bytes()).hexdigest()}
    with pytest.raises(InvalidInput, match="do not fit"):
        resolve_model(f"small_conv:{path}", num_classes=4)


def test_a_pickle_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "evil.pt"
    torch.save({"run": Path}, path)  # holds a reference to a class, which a pickle would import and call
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_weights(path)


def test_a_factory_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_models_here.py").write_text(
        "import torch\ndef make():\n    return torch.nn.Linear(4, 2)\ndef broken():\n    raise ValueError('oh')\n"
    )
    monkeypatch.chdir(tmp_path)
    classifier = resolve_model("my_models_here:make", mean=[0.5], std=[0.5])
    assert classifier.num_classes == 2
    assert str(tmp_path) not in sys.path
    with pytest.raises(InvalidInput, match="oh"):
        call_factory("my_models_here:broken")
    for bad in ("my_models_here:nothing", "no_such_module_here:f", "nonsense", "a b:c", "resnet1:x", ":", ""):
        with pytest.raises(InvalidInput, match="model"):
            resolve_model(bad)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_module_of_other_weights_runs_as_it_is(dtype: torch.dtype) -> None:
    module = torch.nn.Linear(3, 2)
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]))
        module.bias.zero_()
    module.to(dtype)
    seen: list[torch.dtype] = []
    module.register_forward_hook(lambda _, given, __: seen.append(given[0].dtype))
    votes = draw_counts(as_classifier(module), np.full((3, 3), [9.0, 0.0, 0.0], dtype=np.float32), **DRAW)
    assert votes.tolist() == [[DRAW["n"], 0]] * 3
    assert set(seen) == {dtype}


def test_a_callable_around_a_module_may_return_a_tensor_with_its_gradient() -> None:
    module = network().eval()
    around = as_classifier(lambda batch: module(torch.as_tensor(batch)), num_classes=3)
    assert (draw_counts(around, X, **DRAW) == draw_counts(as_classifier(module), X, **DRAW)).all()
    with pytest.raises(ClassifierError, match="is given a NumPy array, and this one takes torch tensors"):
        draw_counts(as_classifier(module.forward, num_classes=3), X, **DRAW)


def test_a_class_in_the_place_of_a_model_is_named() -> None:
    with pytest.raises(InvalidInput, match=r"model must be an instance, Linear\(\.\.\.\)"):
        as_classifier(torch.nn.Linear, num_classes=2)


@pytest.mark.parametrize("change", [{"num_classes": 1}, {"dtype": "int8"}, {"device": "abacus"}, {"device": "cuda:99"}])
def test_bad_settings_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        as_classifier(network(), **change)


def test_torch_settings_are_not_ignored_elsewhere() -> None:
    with pytest.raises(InvalidInput, match="torch modules"):
        as_classifier(lambda b: b, num_classes=2, dtype="bfloat16")
    with pytest.raises(InvalidInput, match="model must be"):
        as_classifier(3)
