"""A run goes on with its own model alone: changed answers, weights or votes are refused."""

import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from buckler.errors import BucklerWarning, StoreError
from buckler.files import read_sealed
from buckler.noise import Gaussian
from buckler.runs import identity
from buckler.runs.executor import Executor
from buckler.runs.identity import NOT_REPEATABLE, begin, coarse_products, environment, identify
from buckler.runs.sample import Summary, sample
from buckler.runs.spec import RunSpec
from buckler.runs.store.evidence import open_evidence
from buckler.sampling.classifiers import as_classifier
from buckler.sampling.datasets import Dataset, from_arrays
from buckler.sampling.models import resolve_model
from buckler.sampling.weights import weight_files
from buckler.types import AnyArray

RNG = np.random.default_rng(0)
X = RNG.random((12, 1, 4, 4)).astype(np.float32)
WEIGHTS = RNG.normal(size=(16, 3)).astype(np.float32)
SPEC = RunSpec(model="m", data="d", sigma=0.25, num_classes=3, n=40, n0=10, shard_inputs=2, batch_size=64)


def data() -> Dataset:
    return from_arrays(X)


def linear(batch: AnyArray) -> AnyArray:
    return batch.reshape(len(batch), -1) @ WEIGHTS


def go_on(model: Any, home: Path, shards: int = 1, **options: Any) -> Summary:
    """Draw a few shards more, so that there is always something left to draw."""
    return sample(
        SPEC, as_classifier(model, num_classes=3), data(), home / "run", max_samples=shards * 100, **options
    )  # fmt: skip


def drawn_by(home: Path) -> list[dict[str, Any]]:
    """Return the models that drew a run, in the order of their first shards."""
    found = list[dict[str, Any]]()
    for path in sorted((home / "run" / "shards").glob("*.json")):
        if (record := read_sealed(path)["drawn_by"]) not in found:
            found.append(record)
    return found


HEAD = "import numpy as np\nimport torch\nBASE = np.sin(np.arange(48.0)).reshape(16, 3).astype('f4')\n"
FLAT = "b.reshape(len(b), -1)"
SOURCES = {
    "a dict of the module": f"D = {{{{'w': BASE * {{w}}}}}}\ndef model(b):\n    return {FLAT} @ D['w']\n",
    "a function without source": (
        "space = {{'BASE': BASE, 'np': np}}\n"
        f"exec('def model(b): return {FLAT} @ BASE * np.float32({{w}})', space)\nmodel = space['model']\n"
    ),
}


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.syspath_prepend(tmp_path)

    def made(name: str, source: str, w: float = 1.0) -> Any:
        (tmp_path / f"{name}.py").write_text(source.format(w=w))
        importlib.invalidate_caches()
        found = importlib.import_module(name)
        monkeypatch.delitem(sys.modules, name)
        return found.model

    return made


@pytest.mark.parametrize("where", SOURCES)
def test_weights_wherever_they_are(where: str, tmp_path: Path, load: Callable[..., Any]) -> None:
    source = HEAD + SOURCES[where]
    go_on(load("first_name", source), tmp_path)
    before = {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()}
    with pytest.raises(StoreError, match="another model: its logits for the same noisy inputs differ"):
        go_on(load("second_name", source, w=1.5), tmp_path)
    assert {p: p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file()} == before
    # The same from a module of another name, with a comment more.
    assert go_on(load("third_name", "# a comment\n" + source), tmp_path).samples == 100
    assert len(drawn_by(tmp_path)) == 1


def test_a_torch_module_with_a_hook_is_another() -> None:
    def net(factor: float = 1.0) -> nn.Module:
        linear = nn.Linear(16, 3, bias=False)
        linear.weight = nn.Parameter(torch.from_numpy(WEIGHTS.T.copy()))
        linear.register_forward_hook(lambda _, __, out: out * factor)
        return nn.Sequential(nn.Flatten(), linear)

    answers = [identity.probe_of(SPEC, data()).answers(as_classifier(net(factor))) for factor in (1.0, 1.0, 1.5)]
    assert answers[0] == answers[1] != answers[2]


@pytest.mark.slow
def test_a_script_and_its_import_are_one(tmp_path: Path, load: Callable[..., Any]) -> None:
    source = (
        HEAD + SOURCES["a dict of the module"] + "if __name__ == '__main__':\n"
        "    from pathlib import Path\n    from tests.runs.test_identity import go_on\n"
        "    go_on(model, Path(__file__).parent)\n"
    )
    model = load("script", source)
    path = os.pathsep.join([str(Path(__file__).parents[2]), *(p for p in sys.path if p)])
    script = [sys.executable, str(tmp_path / "script.py")]
    subprocess.run(script, check=True, env={**os.environ, "PYTHONPATH": path})  # noqa: S603
    assert go_on(model, tmp_path).inputs_done == 4


def test_what_an_object_says_of_itself_does_not_matter(tmp_path: Path) -> None:
    class Model:
        def __init__(self, name: str) -> None:
            self.name = name

        def __repr__(self) -> str:
            return self.name

        def __call__(self, batch: AnyArray) -> AnyArray:
            return linear(batch)

    go_on(Model("1.0"), tmp_path)
    assert go_on(Model("np.float64(1.0)"), tmp_path).samples == 100


def onnx_model(path: Path, scale: float, note: str = "") -> Path:
    nodes = [
        helper.make_node("Flatten", ["x"], ["flat"], axis=1),
        helper.make_node("MatMul", ["flat", "w"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes,
        "linear",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 1, 4, 4])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 3])],
        [numpy_helper.from_array(WEIGHTS * np.float32(scale), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9, doc_string=note)
    onnx.save(model, path, save_as_external_data=True, location=f"{path.stem}.data", size_threshold=0)
    return path


def test_an_onnx_file_and_its_external_data(tmp_path: Path) -> None:
    path = onnx_model(tmp_path / "net.onnx", 1.0)
    assert list(weight_files(path)) == ["net.onnx", "net.data"]
    go_on(path, tmp_path)
    raw = bytearray((tmp_path / "net.data").read_bytes())
    whole = bytes(raw)
    raw[-1] ^= 0x01  # two powers of two in the exponent of the last weight
    (tmp_path / "net.data").write_bytes(raw)
    with pytest.raises(StoreError, match=r"its weights differ \(net\.data\)"):
        go_on(path, tmp_path)
    (tmp_path / "net.data").write_bytes(whole)
    # Elsewhere, and without a path that says so, it is the same model.
    (tmp_path / "moved").mkdir()
    for name in ("net.onnx", "net.data"):
        (tmp_path / name).rename(tmp_path / "moved" / name)
    assert go_on(tmp_path / "moved" / "net.onnx", tmp_path).samples == 100
    # Another file is refused although it answers alike, unless that is meant.
    noted = onnx_model(tmp_path / "noted.onnx", 1.0, note="exported again")
    with pytest.raises(StoreError, match=r"its weights differ \(noted\.onnx\)"):
        go_on(noted, tmp_path)
    assert go_on(noted, tmp_path, allow_other_model=True).samples == 100
    first, second = drawn_by(tmp_path)
    assert first["answers"] == second["answers"]
    assert first["weights"] != second["weights"]


def test_normalisation_and_names_keep_the_files(tmp_path: Path) -> None:
    path = onnx_model(tmp_path / "net.onnx", 1.0)
    inside = resolve_model(str(path), mean=[0.5], std=[0.5])
    assert inside.files == as_classifier(path).files == weight_files(path)


def test_another_model_joins_on_request_and_is_recorded(tmp_path: Path) -> None:
    go_on(linear, tmp_path)

    def other(batch: AnyArray) -> AnyArray:
        return -linear(batch)

    with pytest.raises(StoreError, match=r"allow-other-model\), which is recorded"):
        go_on(other, tmp_path)
    assert go_on(other, tmp_path, allow_other_model=True).samples == 100
    assert len(drawn_by(tmp_path)) == 2
    # Both are known now, and neither needs the permission again.
    assert go_on(linear, tmp_path).samples == 100
    assert go_on(other, tmp_path).samples == 100
    assert len(drawn_by(tmp_path)) == 2


def test_a_permission_without_draws_leaves_no_trace(tmp_path: Path) -> None:
    go_on(linear, tmp_path, shards=6)
    assert go_on(lambda b: -linear(b), tmp_path, allow_other_model=True).samples == 0
    assert len(drawn_by(tmp_path)) == 1


def test_other_classes_and_rows_are_named(tmp_path: Path) -> None:
    go_on(linear, tmp_path)
    wide = RunSpec(**{**SPEC.as_dict(), "num_classes": 4})
    model = as_classifier(lambda b: np.repeat(linear(b), 2, axis=1)[:, :4], num_classes=4)
    with pytest.raises(StoreError, match="num_classes: 3 in the folder, 4 asked for"):
        sample(wide, model, data(), tmp_path / "run")


def test_a_model_that_does_not_repeat_itself_is_named(tmp_path: Path) -> None:
    noise = np.random.default_rng(0)

    def restless(batch: AnyArray) -> AnyArray:
        return linear(batch) + noise.normal(size=(len(batch), 3))

    for _ in range(2):
        with pytest.warns(BucklerWarning, match="different logits for the same batch|other logits when") as seen:
            assert go_on(restless, tmp_path).samples == 100
        assert len(seen) == 2  # one says what it means to the run, the other what to a certificate
    assert [record["answers"] for record in drawn_by(tmp_path)] == [NOT_REPEATABLE]
    with pytest.raises(StoreError, match="its logits for the same noisy inputs differ"):
        go_on(linear, tmp_path)
    assert open_evidence(tmp_path / "run").provenance().caution == "The model gave different logits for the same batch."


def record_of_a_worker(model: Any, known: identity.Identity, probe: identity.Probe, allow: bool = False) -> Any:
    """Return what a worker's step is given as the record of its model."""

    def step(engine: Any, record: Any, *_: Any) -> Iterator[Any]:
        del engine
        yield record

    with begin(probe, known.record, step, allow, as_classifier(model, num_classes=3), 1) as compute:
        return next(compute(None, Path(), print))


def test_every_worker_must_be_the_same_model(monkeypatch: pytest.MonkeyPatch) -> None:
    known, probe = identify(SPEC, Executor(as_classifier(linear, num_classes=3)), data())
    assert record_of_a_worker(linear, known, probe) == known.record

    def other(batch: AnyArray) -> AnyArray:
        return np.asarray(linear(batch) * np.float32(1.00001))

    with pytest.raises(StoreError, match="different models: its logits for the same noisy inputs differ"):
        record_of_a_worker(other, known, probe)
    assert record_of_a_worker(other, known, probe, allow=True)["answers"] != known.record["answers"]
    monkeypatch.setattr(identity, "environment", lambda _: {"numpy": "0.0"})
    with pytest.raises(StoreError, match=r"numpy: '.*' at one, '0\.0' at another"):
        record_of_a_worker(linear, known, probe)


def hard(offset: float) -> Any:
    """A hard-label model: one-hot of the largest logit, one of which is moved."""

    def model(batch: AnyArray) -> AnyArray:
        labels = (linear(batch) + np.array([offset, 0, 0])).argmax(axis=1)
        return np.asarray(np.eye(3, dtype=np.float32)[labels])

    return model


def test_hard_label_models_are_told_apart() -> None:
    """Models that agree on all of the first 32 answers, and differ in some of 4,096."""
    spec = replace(SPEC, sigma=None, noise=Gaussian(0.5))
    probe = identity.probe_of(spec, data())
    first = {offset: _few_answers(probe, hard(offset)) for offset in (0.0, *np.linspace(0.02, 0.4, 20))}
    twins = [offset for offset, answers in first.items() if offset and answers == first[0.0]]
    assert len(twins) >= 3
    known = probe.answers(as_classifier(hard(0.0), num_classes=3))
    told = [probe.answers(as_classifier(hard(offset), num_classes=3)) != known for offset in twins]
    assert all(told)


def _few_answers(probe: identity.Probe, model: Any) -> bytes:
    few = pytest.MonkeyPatch()
    with few.context() as patch:
        patch.setattr(identity, "HARD_LABEL_DRAWS", identity.PROBE_DRAWS)
        return probe.answers(as_classifier(model, num_classes=3)).encode()


def _refit(seed: int) -> Any:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(60, 16)), rng.integers(0, 3, 60)


ESTIMATORS: dict[str, Callable[[], Any]] = {
    "nearest neighbours": lambda: KNeighborsClassifier(5),
    "a forest": lambda: RandomForestClassifier(3, random_state=0),
    "gradient boosting": lambda: HistGradientBoostingClassifier(max_iter=3, random_state=0),
    "a pipeline": lambda: make_pipeline(StandardScaler(), LogisticRegression()),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_refitted_estimator_is_another_model(name: str) -> None:
    x, y = _refit(0)
    hashes = [as_classifier(ESTIMATORS[name]().fit(x, y)).files["fitted arrays"] for _ in range(2)]
    assert hashes[0] == hashes[1]
    moved = x.copy()
    moved[7] += 0.5
    assert as_classifier(ESTIMATORS[name]().fit(moved, y)).files["fitted arrays"] != hashes[0]


def test_a_refitted_estimator_does_not_join_a_run(tmp_path: Path) -> None:
    x, y = _refit(0)
    go_on(KNeighborsClassifier(5).fit(x, y), tmp_path)
    assert go_on(KNeighborsClassifier(5).fit(x, y), tmp_path).samples == 100
    with pytest.raises(StoreError, match=r"another model: .*weights differ \(fitted arrays\)"):
        go_on(KNeighborsClassifier(5).fit(*_refit(1)), tmp_path)


def test_coarse_products_are_recorded_and_exact_ones_left_out() -> None:
    classifier = as_classifier(torch.nn.Linear(2, 2))
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("highest")
        assert "float32 products" not in environment(classifier)
        torch.set_float32_matmul_precision("high")
        assert environment(classifier)["float32 products"] == "matmul high"
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize(
    ("matmul", "cudnn", "told"),
    [
        ("highest", True, "convolutions tf32"),
        ("medium", True, "matmul medium, convolutions tf32"),
        ("highest", False, ""),
        (None, False, "matmul tf32"),  # flags of single backends: torch has no one answer
    ],
)
def test_a_device_has_flags_of_its_own(matmul: str | None, cudnn: bool, told: str) -> None:
    def precision() -> str:
        if matmul is None:
            raise RuntimeError("a mix of the legacy and new APIs")
        return matmul

    cuda = SimpleNamespace(matmul=SimpleNamespace(fp32_precision="tf32"))
    backends = SimpleNamespace(cuda=cuda, cudnn=SimpleNamespace(allow_tf32=cudnn))
    stub: Any = SimpleNamespace(get_float32_matmul_precision=precision, backends=backends)
    assert coarse_products(stub, cuda=True) == told
