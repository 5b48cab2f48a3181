"""Shards are sized by time, and what is drawn does not depend on it; an interrupt says what is kept and lost."""

import json
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from buckler.cli.app import run as command
from buckler.runs import sample as cut
from buckler.runs.executor import Interrupted
from buckler.runs.sample import SECONDS, Block, Blocks, sample
from buckler.runs.spec import RunSpec
from buckler.runs.store.evidence import open_evidence
from buckler.sampling.classifiers import as_classifier
from buckler.sampling.datasets import Dataset, from_arrays, open_dataset
from buckler.types import AnyArray
from tests.runs.victim import linear, spec

BY_TIME = spec(shard_inputs=None, n=100, checkpoints=(10, 100), limit=60)
"""Three inputs are drawn together: 2 x 256 rows // 150."""


def simulated(inputs: int) -> Dataset:
    return from_arrays(np.linspace(0.0, 1.0, inputs * 2, dtype=np.float32).reshape(inputs, 2))


def plain(**changes: Any) -> RunSpec:
    return RunSpec(**{"model": "m", "data": "d", "sigma": 1.0, "num_classes": 2, "n": 1000, **changes})


def sizes(made: RunSpec, inputs: int, draws_a_second: float) -> list[int]:
    """Return the blocks of a run on a machine of that speed."""
    blocks = Blocks(made, simulated(inputs), [(0, inputs)])
    found = []
    for block in blocks:
        found.append(len(block.ids))
        blocks.took(found[-1], found[-1] * (made.n + made.n0) / draws_a_second)
    assert sum(found) == inputs
    return found


@pytest.mark.parametrize("rate", [50.0, 300.0, 5_000.0, 40_000.0])
def test_blocks_hold_ten_seconds_of_work(rate: float) -> None:
    made = plain()
    seconds = [size * 1000 / rate for size in sizes(made, 2000, rate)]
    one = 1000 / rate
    assert max(seconds) <= max(SECONDS, one)
    if one < SECONDS:
        assert min(seconds[5:-1]) > SECONDS / 2
    else:
        assert set(seconds) == {one}, "an input that takes longer than ten seconds is a block of its own"


def test_the_first_block_is_one_group_and_blocks_grow_in_steps() -> None:
    found = sizes(plain(), 5000, 1e9)
    assert found[0] == plain().drawn_together == 1
    assert all(after <= cut.BLOCK_GROWTH * before for before, after in pairwise(found))
    assert max(found) == 1000


def test_a_slow_machine_gets_small_blocks_after_large_ones() -> None:
    made = plain(n=100, n0=0)
    blocks = Blocks(made, simulated(5000), [(0, 5000)])
    walk = iter(blocks)
    for _ in range(6):
        size = len(next(walk).ids)
        blocks.took(size, size * 0.01)
    assert size == 1000 // made.drawn_together * made.drawn_together
    blocks.took(size, size * 1.0)
    assert len(next(walk).ids) == made.drawn_together == 10


def test_a_size_that_was_asked_for_is_exact_whatever_the_time() -> None:
    assert sizes(plain(shard_inputs=7), 30, 1e9) == sizes(plain(shard_inputs=7), 30, 1.0) == [7, 7, 7, 7, 2]


def test_blocks_fill_the_gaps_and_keep_to_groups() -> None:
    made = plain(n=100, n0=0)
    blocks = Blocks(made, simulated(100), [(10, 40), (60, 100)])
    firsts = [block.first for block in blocks]
    assert firsts == [10, 20, 30, 60, 70, 80, 90]
    limited = Blocks(made, simulated(100), [(10, 40), (60, 100)], most=25)
    assert [block.first for block in limited] == [10, 20]


def test_groups_begin_at_multiples_wherever_a_block_begins() -> None:
    block = Block(5, tuple("abcdefgh"), None, np.zeros((8, 1), dtype=np.float32))
    assert [(group.first, "".join(group.ids)) for group, _ in block.groups(3)] == [
        (5, "a"), (6, "bcd"), (9, "efg"), (12, "h"),
    ]  # fmt: skip


def touchy(batch: AnyArray) -> AnyArray:
    """Its logits depend on how many rows share a batch and on what they hold, as those of real kernels may."""
    return np.asarray(linear(batch) + np.float32(len(batch) % 7) * batch[:1, 0, 0, :1] + batch.mean())


def drawn(home: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, **options: Any) -> Any:
    monkeypatch.setattr(cut, "SECONDS", seconds)
    data = open_dataset("digits").select(limit=60)
    return sample(BY_TIME, as_classifier(touchy, num_classes=10), data, home, **options)


def test_what_is_drawn_does_not_depend_on_where_shards_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert BY_TIME.drawn_together == 3
    assert drawn(tmp_path / "small", monkeypatch, 0.0).shards == 20
    assert drawn(tmp_path / "large", monkeypatch, 1e9).shards == 3  # one group, four times more, and the rest
    assert not drawn(tmp_path / "mixed", monkeypatch, 0.0, max_samples=30 * 150).complete
    assert drawn(tmp_path / "mixed", monkeypatch, 1e9).complete
    digests = {open_evidence(tmp_path / name).digest() for name in ("small", "large", "mixed")}
    assert len(digests) == 1
    names = [{p.name for p in (tmp_path / name / "shards").iterdir()} for name in ("small", "large", "mixed")]
    assert len({frozenset(found) for found in names}) == 3, "the shards were to differ"


def test_an_interrupt_says_what_is_kept_and_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(_: int, __: int, made: int) -> None:
        if made >= 31 * 150 - 100:  # the selection draws of an eleventh group, and no estimation draws
            raise KeyboardInterrupt

    with pytest.raises(Interrupted) as caught:
        drawn(tmp_path / "run", monkeypatch, 0.0, progress=stop)
    summary = caught.value.done
    assert (summary.inputs_done, summary.inputs, summary.shards) == (30, 60, 10)
    assert summary.lost == summary.samples - 30 * 150 > 0
    evidence = open_evidence(tmp_path / "run")
    assert evidence.inputs_done == 30
    assert evidence.counts()[0].ids == open_dataset("digits").ids[:30]


MODEL = """
import os
class Model:
    num_classes = 3
    def __call__(self, batch):
        if len(batch) == 500 and abs(batch.mean() - 0.3) < 0.05 and os.path.exists("stop"):
            raise KeyboardInterrupt
        return batch.reshape(len(batch), -1)[:, :3]
def make(): return Model()
"""
OPTIONS = {
    "--model": "stopping_model:make", "--data": "x.npy", "--sigma": "0.001", "--n": "500", "--n0": "20",
    "--num-classes": "3",
}  # fmt: skip


def test_the_commands_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "stopping_model.py").write_text(MODEL)
    np.save(tmp_path / "x.npy", np.repeat(np.arange(10, dtype=np.float32)[:, None] / 10, 4, axis=1))
    (tmp_path / "stop").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cut, "SECONDS", 0.0)
    words = ["sample", "run", *(part for option in OPTIONS.items() for part in option)]
    assert command([*words, "--quiet"]) == 3
    said = capsys.readouterr().err
    # Stopped at the estimation draws of the fourth input, whose selection draws are kept.
    assert "interrupted; run keeps 3 of 10 inputs in 3 shards and 20 draws of the input under way. Go on with" in said
    assert "Go on with: buckler sample run" in said
    (tmp_path / "stop").unlink()
    assert command([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["inputs_done"], told["samples"]) == (10, 7 * 520 - 20)


def test_first_blocks_are_given_out_before_any_is_measured() -> None:
    """As to the workers of a cluster: each gets the smallest ones until the first come back."""
    blocks = Blocks(plain(), simulated(100), [(0, 100)])
    assert [block.first for block in islice(blocks, 8)] == list(range(8))
