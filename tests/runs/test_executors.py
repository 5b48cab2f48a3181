"""Probes and answers that identify a model, and the executor of this process."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from buckler.runs.executor import Executor, Job, Step, StepContext
from buckler.runs.identity import TIMES, Identity, expected_of, names_hash
from buckler.sampling.classifiers import Classifier, as_classifier
from buckler.sampling.datasets import from_arrays
from buckler.sampling.probe import CLOSE, DRAWS, INPUTS, Answers, Probe, answers_from, probed
from tests.runs.test_identity import SPEC

LOGITS = np.arange(2.0 * DRAWS * 2, dtype=np.float32).reshape(2 * DRAWS, 2)


def answers(logits: Any = LOGITS, repeatable: bool = True) -> Answers:
    return Answers({"a": "x", "b": "y"}, np.asarray(logits, dtype=np.float32), repeatable)


def test_names_and_answers_hash_as_they_did() -> None:
    """Runs on disk are known by these."""
    x = np.zeros((2, 1), dtype=np.float32)
    assert names_hash(from_arrays(x, np.array([1, 0]))) == "names:32cc3df091aecb2f052bd15a7b5a12ad69bb460d"
    assert names_hash(from_arrays(x)) == "names:04270cf18c6bd5718145bc29843bbedfca053720"
    rows = np.arange(8, dtype=np.float32).reshape(4, 2)
    assert (
        Answers({"a": "x"}, rows, repeatable=True).hash
        == "answers:83f238d4996c119d9fde33ca84194e91a02b28a56868a649192872454583853c"
    )
    assert answers(repeatable=False).hash == answers(-LOGITS, repeatable=False).hash == "answers:not-repeatable"
    assert len({answers().hash, answers(-LOGITS).hash, answers(LOGITS.reshape(DRAWS, 4)).hash}) == 3
    assert (INPUTS, DRAWS, TIMES) == (8, 4, 2)


@pytest.mark.parametrize("dtype", CLOSE)
def test_close_from_both_sides(dtype: str) -> None:
    """One logit among many moves by a little less, and a little more, than its share of the largest."""
    share = {"float32": 0.01, "float16": 0.01, "bfloat16": 0.1}[dtype]
    for factor, expected in ((0.999, True), (1.001, False)):
        moved = LOGITS.copy()
        moved[5, 0] -= np.float32(factor * share * 15.0)
        assert answers().is_close(answers(moved), dtype) == expected
        apart, where = answers().distance(answers(moved))
        assert apart == pytest.approx(factor * share * 15.0, rel=1e-5)
        assert where == "b"
    assert answers().distance(answers(LOGITS[:, :1])) == (np.inf, "a")


def test_answers_that_are_none_are_refused() -> None:
    kept = answers().as_dict()
    assert answers_from(kept).hash == answers().hash
    assert not answers_from({**kept, "repeatable": False}).repeatable
    broken: list[dict[str, Any]] = [
        {"repeatable": "yes"},
        {"inputs": [["a", "x"]]},
        {"inputs": [], "shape": [0, 2], "logits": ""},
        {"logits": kept["logits"][:8] + "\n" + kept["logits"][8:]},
    ]
    for place in (0, 7):
        logits = LOGITS.copy()
        logits[place, 1] = np.inf
        broken.append({"logits": answers(logits).as_dict()["logits"]})
    for change in broken:
        with pytest.raises(ValueError, match=r"answers|base64"):
            answers_from({**kept, **change})


def test_a_probe_hears_whether_answers_repeat() -> None:
    x = np.random.default_rng(0).random((2, 3)).astype(np.float32)
    calls = [0]

    def model(batch: Any, turns: bool = False) -> Any:
        calls[0] += 1
        return np.asarray(batch)[:, :2] * (-1.0 if turns and calls[0] > 1 else 1.0)

    probe = Probe(("a", "b"), x, SPEC.noise_law, 2, 0, 64)
    once = probe.ask(as_classifier(model, num_classes=2))
    assert (calls[0], once.repeatable, once.logits.shape) == (1, True, (2 * DRAWS, 2))
    assert list(once.inputs) == ["a", "b"]
    assert probe.ask(as_classifier(model, num_classes=2), times=3).hash == once.hash
    calls[0] = 0
    turned = probe.ask(as_classifier(lambda b: model(b, turns=True), num_classes=2), times=2)
    assert not turned.repeatable
    assert (turned.logits == once.logits).all()
    assert probed(1) == [0]
    assert probed(9)[-1] == 8
    identity = Identity(once.hash, "d", {}, once)
    assert expected_of(Identity("log", "d"), probe, SPEC, any_environment=False) is None
    expected = expected_of(identity, probe, SPEC, any_environment=True)
    assert expected is not None
    assert (expected.any_environment, expected.dtype) == (True, "float32")
    assert "answers" not in Identity("log", "d").as_dict()
    assert "answers" in identity.as_dict()


class Recorded:
    """A step that sends one result for each block, and a second one except for block 2."""

    @contextmanager
    def begin(self, classifier: Classifier, threads: int | None) -> Iterator[Step]:
        assert classifier.num_classes == 2
        assert threads is None

        def step(data: Any, context: StepContext) -> None:
            context.send_result(f"first {data}")
            context.tick(10)
            if data != 4:
                context.send_result(f"second {data}")

        yield step


def test_blocks_run_in_order_in_this_process() -> None:
    done: list[tuple[int, Any]] = []
    ticks: list[int] = []
    executor = Executor(as_classifier(lambda b: b, num_classes=2))
    assert executor.width == 1
    assert executor.describe().num_classes == 2
    job = Job(Recorded().begin, [3, 2, 0], lambda k: 2 * k, lambda *result: done.append(result), ticks.append)
    executor.run(job)
    assert done == [(3, "first 6"), (3, "second 6"), (2, "first 4"), (0, "first 0"), (0, "second 0")]
    assert ticks == [10, 10, 10]
    done.clear()
    executor.run(replace(job, deadline=time.monotonic() - 1.0))
    assert done == [(3, "first 6")]  # the block under way ends at its first tick, and no other begins
