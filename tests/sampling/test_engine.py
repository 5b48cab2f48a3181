"""Votes and scores are those of a plain loop, whatever the batch size; errors name the input."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from buckler.errors import ClassifierError, InvalidInput
from buckler.noise import Ablation, DerandomizedSplitting, Gaussian, GridGaussian, Splitting, Uniform, grid
from buckler.sampling import cpu
from buckler.sampling.classifiers import as_classifier
from buckler.sampling.cpu import KeptScores, NoisyCopies
from buckler.sampling.device import CudaNoise, TorchBackend
from buckler.sampling.engine import Engine, exhaust
from buckler.sampling.simplex import score_map
from buckler.sampling.streams import NOISE_BLOCK, Address, Batch, Request, Stream, gaussian
from buckler.types import OTHERS, AnyArray, ArrayLike, FloatArray, IntArray, SimplexMap

torch.set_num_threads(1)

X = np.random.default_rng(0).random((5, 6)).astype(np.float32)
IDS = [f"input-{i}" for i in range(5)]
WEIGHTS = np.random.default_rng(1).normal(size=(6, 4)).astype(np.float32)


def rowwise(batch: AnyArray) -> AnyArray:
    """A classifier whose rows do not depend on one another, down to the last bit."""
    return np.stack([(row[:, None] * WEIGHTS).sum(axis=0) for row in batch])


class RowwiseModule(torch.nn.Module):
    """The same in torch."""

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return (batch[:, :, None] * torch.from_numpy(WEIGHTS)).sum(dim=1)


def plain_loop(x: AnyArray, name: str, n: int, sigma: float, seed: int = 0) -> IntArray:
    counts = np.zeros(4, dtype=np.int64)
    for draw in range(n):
        block, low = divmod(draw, NOISE_BLOCK)
        noise = gaussian(Address(seed, name, "estimation", block), 1, x.shape, low)
        counts[int(rowwise(x[None] + np.float32(sigma) * noise).argmax())] += 1
    return counts


MODELS: list[Any] = [rowwise, RowwiseModule()]
DRAW: dict[str, Any] = {"sigma": 0.7, "num_classes": 4, "seed": 0, "stream": "estimation"}


def test_counts_are_those_of_a_plain_loop_for_every_batch_size_order_and_part_of_the_stream() -> None:
    expected = plain_loop(X[0], IDS[0], 300, 0.7)
    together = draw_counts(rowwise, X, n=300, input_id=IDS, **DRAW)
    for model in MODELS:
        for rows in (1, 7, 64, 1000):
            one = draw_counts(model, X[0], n=300, input_id=IDS[0], batch_size=rows, **DRAW)
            many = draw_counts(model, X[::-1], n=300, input_id=IDS[::-1], batch_size=rows, **DRAW)
            assert (one == expected).all(), (model, rows)
            assert (many[::-1] == together).all(), (model, rows)
    assert (together[0] == expected).all()
    parts = [draw_counts(rowwise, X, n=k, start=s, input_id=IDS, **DRAW) for s, k in ((0, 100), (100, 33), (133, 167))]
    assert (np.sum(parts, axis=0) == together).all()
    other = draw_counts(rowwise, X, n=300, input_id=IDS, **{**DRAW, "stream": "selection"})
    assert (other != together).any()


def test_scores_vote_as_counts_do() -> None:
    maps: tuple[Any, ...] = ("softmax", "sparsemax")
    for model in MODELS:
        counts = draw_counts(model, X, n=150, input_id=IDS, **DRAW)
        for name in maps:
            scores = draw_scores(model, X, n=150, input_id=IDS, map=name, **DRAW)
            assert scores.shape == (5, 150, 4)
            assert np.abs(scores.sum(axis=2) - 1).max() < 1e-5
            votes = [np.bincount(row.argmax(axis=1), minlength=4) for row in scores]
            assert (counts == votes).all(), (model, name)
            single = draw_scores(model, X[1], n=150, input_id=IDS[1], map=name, batch_size=7, **DRAW)
            assert (single == scores[1]).all(), (model, name)


def test_checkpoints_are_prefixes() -> None:
    for model in MODELS:
        engine = Engine(as_classifier(model, num_classes=4), sigma=0.7, batch_size=64)
        requests = [Request(i, 0, 500) for i in range(5)]
        with engine.session():
            drawn = engine.draw(X, IDS, "estimation", requests, checkpoints=(10, 100, 500)).cumsum(axis=1)
        for k, n in enumerate((10, 100, 500)):
            assert (drawn[:, k] == draw_counts(model, X, n=n, input_id=IDS, **DRAW)).all(), (model, n)


def test_kept_columns_and_the_rest() -> None:
    for model in MODELS:
        scores = draw_scores(model, X, n=100, input_id=IDS, **DRAW)
        columns = np.array([[2, 0, OTHERS], [1, 3, OTHERS], [0, 1, OTHERS], [3, 2, OTHERS], [2, 1, OTHERS]])
        engine = Engine(as_classifier(model, num_classes=4), sigma=0.7, batch_size=64)
        rows: list[AnyArray] = []
        keep = KeptScores(score_map("softmax", None), rows.append, columns)
        with engine.session():
            engine.draw(X, IDS, "estimation", [Request(i, 0, 100) for i in range(5)], keep=keep)
        found = np.concatenate(rows).reshape(5, 100, 3)
        for i, (a, b, _) in enumerate(columns):
            rest = np.delete(scores[i], [a, b], axis=1).max(axis=1)
            expected = np.stack([scores[i][:, a], scores[i][:, b], rest], axis=1)
            assert np.abs(found[i] - expected).max() < 1e-6, (model, i)


def failing(wrong: Callable[[AnyArray], AnyArray]) -> Callable[[AnyArray], AnyArray]:
    """Return a classifier that goes wrong on the third input alone, told by its first value."""

    def call(batch: AnyArray) -> AnyArray:
        return wrong(batch) if (np.abs(batch[:, 0] - 50) < 10).any() else rowwise(batch)

    return call


MARKED = X.copy()
MARKED[2, 0] = 50.0


def _raise(_: AnyArray) -> AnyArray:
    raise ZeroDivisionError("no such thing")


WRONG: list[tuple[Callable[[AnyArray], AnyArray], str]] = [
    (_raise, "ZeroDivisionError: no such thing"),
    (lambda b: np.where(np.abs(b[:, :1] - 50) < 10, np.nan, rowwise(b)), "NaN or infinite logit"),
    (lambda b: np.where(np.abs(b[:, :1] - 50) < 10, np.inf, rowwise(b)), "NaN or infinite logit"),
    (lambda b: rowwise(b)[:, :3], "must return 4 classes; got 3"),
    (lambda b: rowwise(b)[:-1], "one row of logits"),
    (lambda b: rowwise(b)[:, 0], "one row of logits"),
    (lambda b: np.full((len(b), 4), "cat"), "must return numbers"),
]


def test_errors_name_the_input() -> None:
    for wrong, text in WRONG:
        for rows in (16, 1000):
            with pytest.raises(ClassifierError, match="input-2") as caught:
                draw_counts(failing(wrong), MARKED, n=40, input_id=IDS, batch_size=rows, **(DRAW | {"sigma": 0.1}))
            assert text in str(caught.value), rows


def test_a_nan_from_a_module_is_named_and_never_a_vote() -> None:
    class Bad(RowwiseModule):
        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            return torch.where((batch[:, :1] - 50).abs() < 10, torch.nan, super().forward(batch))

    for call in (draw_counts, draw_scores):
        with pytest.raises(ClassifierError, match="'input-2'"):
            call(Bad(), MARKED, n=40, input_id=IDS, **(DRAW | {"sigma": 0.1}))


def test_memory_that_runs_out_halves_the_batch_and_goes_on() -> None:
    seen: list[int] = []

    class Large(RowwiseModule):
        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            seen.append(len(batch))
            if len(batch) > 70:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return super().forward(batch)

    options: dict[str, Any] = {"sigma": 0.7, "num_classes": 4}
    engine = Engine(as_classifier(Large(), num_classes=4), batch_size=512, **options)
    with engine.session():
        drawn = engine.votes(X, IDS, "estimation", 300)
    assert engine.rows == 64
    assert [rows for rows in seen if rows > 70] == [512, 256, 128]
    assert (drawn == draw_counts(rowwise, X, n=300, seed=0, stream="estimation", input_id=IDS, **options)).all()

    def never(_: AnyArray) -> AnyArray:
        raise MemoryError

    with pytest.raises(ClassifierError, match="single row"):
        draw_counts(never, X[0], n=3, seed=0, stream="estimation", input_id="a", **options)


def test_memory_that_runs_out_after_the_scores_does_not_keep_them_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is sent to the device may find it full: what a batch has left by then must not count."""
    send, sent, at = TorchBackend._send, 0, 0

    def draw() -> tuple[AnyArray, AnyArray]:
        engine = Engine(as_classifier(RowwiseModule(), num_classes=4), sigma=0.7, batch_size=128)
        rows: list[AnyArray] = []
        keep = KeptScores(lambda logits: logits, rows.append)
        with engine.session():
            votes = engine.draw(X, IDS, "estimation", [Request(i, 0, 40) for i in range(5)], keep=keep)
        return votes, np.concatenate(rows)

    def full(self: TorchBackend, values: IntArray) -> torch.Tensor:
        nonlocal sent
        sent += 1
        if sent == at:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return send(self, values)

    expected = draw()
    monkeypatch.setattr(TorchBackend, "_send", full)
    for at in (1, 2, 4):
        sent = 0
        votes, rows = draw()
        assert sent > at
        assert (votes == expected[0]).all(), at
        assert rows.shape == expected[1].shape, at
        assert np.allclose(rows, expected[1], rtol=1e-5), at


def test_memory_that_runs_out_in_a_block_leaves_no_noise_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch that is drawn again may begin in the block before, which must be that block's own."""
    drawn: list[int] = []

    def draw(_: CudaNoise, out: torch.Tensor, address: Address) -> None:
        out.fill_(float(address.block))
        drawn.append(address.block)
        if drawn == [0, 1]:
            raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(CudaNoise, "_draw", draw)
    noise, first = CudaNoise("cpu"), Address(0, "a", "estimation")
    out = torch.empty((2, 3))
    noise.fill(out, first, 5)
    with pytest.raises(torch.OutOfMemoryError):
        noise.fill(out, first.at(1), 0)
    noise.fill(out, first, 7)
    assert (out == 0.0).all()
    assert drawn == [0, 1, 0]


def test_copies_on_a_device_are_those_of_the_host_from_the_same_normal_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    def draw(_: CudaNoise, out: torch.Tensor, address: Address) -> None:
        out.copy_(torch.from_numpy(gaussian(address, NOISE_BLOCK, tuple(out.shape[1:]))))

    monkeypatch.setattr(CudaNoise, "_draw", draw)
    part = Batch.of(Request(1, 100, 300), Request(0, 5, 20))
    addresses = [Address(0, name, "estimation") for name in "ab"]
    law, host, out = Gaussian(0.5), np.empty((215, 6), dtype=np.float32), torch.empty((215, 6))
    noise = CudaNoise("cpu", law.spread)
    noise.load(X[:2])
    noise.write(out, part, addresses)
    NoisyCopies(law, 1).write(host, part, X[:2], addresses)
    assert np.array_equal(out.numpy(), host)


def test_a_classifier_may_answer_in_one_place_every_time() -> None:
    """As engines with bound outputs do: what is kept of a batch must not change with the next one."""
    place = np.empty((64, 4), dtype=np.float32)

    def bound(batch: AnyArray) -> AnyArray:
        place[: len(batch)] = rowwise(batch)
        return place[: len(batch)]

    found, expected = (draw_scores(model, X, n=100, input_id=IDS, batch_size=64, **DRAW) for model in (bound, rowwise))
    assert (found == expected).all()


def test_progress_counts_every_draw_and_may_end_the_work() -> None:
    engine = Engine(as_classifier(rowwise, num_classes=4), sigma=0.7, batch_size=10)
    ticks: list[int] = []
    exhaust(engine.steps(X, IDS, "estimation", [Request(i, 0, 100) for i in range(5)]), ticks.append)
    assert sum(ticks) == 500
    assert len(ticks) > 2

    def stop(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        exhaust(engine.steps(X, IDS, "estimation", [Request(0, 0, 1000)]), stop)


def test_bad_arguments_are_refused() -> None:
    changes: list[dict[str, Any]] = [
        {"sigma": 0.0}, {"sigma": float("nan")}, {"n": 0}, {"n": 2.5}, {"seed": -1}, {"stream": "noise"},
        {"input_id": ["a", "a", "b", "c", "d"]}, {"input_id": ["a"]}, {"batch_size": 0}, {"num_classes": 1},
        {"num_classes": None}, {"x": X + np.nan}, {"x": "image"}, {"workers": 0}, {"generator": "cuda"},
        {"generator": "numpy"}, {"sigma": None, "noise": GridGaussian(0.5), "generator": "cuda"},
    ]  # fmt: skip
    for change in changes:
        refused = False
        try:
            draw_counts(rowwise, **{**DRAW, "x": X, "n": 10, "input_id": IDS, **change})
        except InvalidInput:
            refused = True
        assert refused, change


def test_copies_do_not_depend_on_how_many_are_made_at_a_time_nor_on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "WORTH_A_THREAD", 1)
    x = GridGaussian(0.5).values(np.array([[0, 17, 255, 4], [128, 254, 1, 9]]))
    part = Batch.of(Request(0, 376, 600), Request(1, 0, 160))  # two blocks are whole
    addresses = [Address(0, name, "estimation") for name in "ab"]
    for noise in (
        Gaussian(0.5), GridGaussian(0.5), Uniform(0.1), Splitting(0.1), Splitting(2.5), DerandomizedSplitting(0.1),
        Ablation(2, 4),
    ):  # fmt: skip
        made = []
        for words, values, workers in ((1 << 21, 1 << 16, 1), (1, 1 << 16, 1), (9, 0, 1), (1 << 21, 7, 2), (9, 100, 3)):
            monkeypatch.setattr(cpu, "WORDS_AT_A_TIME", words)
            monkeypatch.setattr(grid, "VALUES_AT_A_TIME", values)
            made.append(np.empty((len(part), 4), dtype=np.float32))
            NoisyCopies(noise, workers).write(made[-1], part, x, addresses)
            assert np.array_equal(made[0], made[-1]), noise
        assert len(np.unique(made[0], axis=0)) > 5, noise


def draw_counts(
    model: Any, x: ArrayLike, *, input_id: str | Sequence[str], n: int, stream: Stream, start: int = 0, **how: Any
) -> IntArray:
    """Return votes ``[m]`` for one input with one id, else ``[inputs, m]``."""
    engine, inputs, ids = _opened(model, x, input_id, how)
    with engine.session():
        counts = engine.votes(inputs, ids, stream, n, start)
    return np.asarray(counts[0] if isinstance(input_id, str) else counts)


def draw_scores(
    model: Any,
    x: ArrayLike,
    *,
    input_id: str | Sequence[str],
    n: int,
    stream: Stream,
    map: SimplexMap = "softmax",  # noqa: A002
    **how: Any,
) -> FloatArray:
    """Return scores ``[n, m]`` for one input with one id, else ``[inputs, n, m]``."""
    engine, inputs, ids = _opened(model, x, input_id, how)
    with engine.session():
        scores = exhaust(engine.score_steps(inputs, ids, stream, n, score_map(map, None)))
    return np.asarray(scores[0] if isinstance(input_id, str) else scores)


def _opened(
    model: Any, x: ArrayLike, input_id: str | Sequence[str], how: dict[str, Any]
) -> tuple[Engine, ArrayLike, Sequence[str]]:
    engine = Engine(as_classifier(model, num_classes=how.get("num_classes")), **how)
    if isinstance(input_id, str):
        return engine, np.asarray(x)[None], [input_id]
    return engine, x, list(input_id)
