"""Shards are sized by time, what is drawn does not depend on it, and an interruption costs ten seconds of work at most.

With a slow network time is counted, not measured: the clock stands still but for the rows that the model is given.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from buckler.cli.app import run as command
from buckler.errors import DamagedEvidence, StoreError
from buckler.runs import sample as cut
from buckler.runs.decide import Target, decide
from buckler.runs.executor import ComputeBlock, Executor
from buckler.runs.sample import SECONDS, Block, Blocks, Summary, sample
from buckler.runs.spec import RunSpec
from buckler.runs.store.evidence import open_evidence
from buckler.runs.store.folder import LOCK, locked
from buckler.runs.store.tables import read_decisions
from buckler.sampling.classifiers import Classifier, as_classifier
from buckler.sampling.datasets import Dataset, from_arrays, open_dataset
from buckler.session import Interrupted, Sink
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


def test_the_smallest_batch_of_a_call_is_told(tmp_path: Path) -> None:
    def small(batch: AnyArray) -> AnyArray:
        if len(batch) > 100:
            raise MemoryError
        return batch

    def call(most: int | None = None) -> Summary:
        made = plain(batch_size=256, n=300)
        return sample(made, as_classifier(small, num_classes=2), simulated(4), tmp_path / "run", max_samples=most)

    assert (call(800).rows, call().rows) == (64, 64)
    assert call().rows == 256, "nothing was left to draw"


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
    assert evidence.counts().ids == open_dataset("digits").ids[:30]


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


class Recorded:
    """A step that hands over one result, draws twice, and hands over another one at its end, however it comes."""

    @contextmanager
    def begin(self, classifier: Classifier, threads: int | None) -> Iterator[ComputeBlock]:
        assert classifier.num_classes == 2
        assert threads is None

        def step(data: Any, _: Path, sink: Sink) -> Iterator[int]:
            sink(f"first {data}")
            try:
                yield 10
                yield 20
            finally:
                sink(f"last {data}")

        yield step


def test_blocks_run_in_order_until_a_deadline() -> None:
    executor, done = Executor(as_classifier(lambda b: b, num_classes=2)), list[str]()
    assert executor.call(lambda classifier, threads: (classifier.num_classes, threads)) == (2, None)
    assert list(executor.run(Recorded().begin, iter([6, 4]), done.append)) == [10, 20, 10, 20]
    assert done == ["first 6", "last 6", "first 4", "last 4"]
    done.clear()
    assert list(executor.run(Recorded().begin, iter([6, 4]), done.append, deadline=time.monotonic() - 1.0)) == [10]
    assert done == ["first 6", "last 6"]  # the block under way ends at its first draws, and no other begins


def hold(root: Path) -> None:
    with locked(root):
        pass


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(StoreError, match="another process is writing to"):
        hold(tmp_path)
    hold(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / LOCK).symlink_to(tmp_path / "outside")
    with pytest.raises(StoreError, match="cannot write to"):
        hold(tmp_path / "run")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_does_not_keep_the_folder(tmp_path: Path) -> None:
    wait, go = os.pipe()
    with locked(tmp_path):
        child = os.fork()
        if child == 0:
            os.read(wait, 1)  # lives on after its parent has let go
            os._exit(0)
    hold(tmp_path)
    assert os.waitpid(child, os.WNOHANG) == (0, 0), "the child was to be alive all the while"
    os.write(go, b"x")
    assert os.waitpid(child, 0)[1] == 0


CLASSES, RATE = 1000, 10.0
WEIGHTS = np.random.default_rng(0).normal(size=(12, CLASSES)).astype("f4")
X = np.random.default_rng(1).uniform(size=(6, 3, 2, 2)).astype("f4")
BEGUN = "begun-000000.json"


class Slow:
    """A network of 1,000 classes that takes a tenth of a second for a row; it is interrupted at a time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.stop = 0.0, float("inf")
        monkeypatch.setattr("time.monotonic", lambda: self.now)

    def __call__(self, batch: AnyArray) -> AnyArray:
        self.now += len(batch) / RATE
        if self.now > self.stop:
            self.stop = float("inf")
            raise KeyboardInterrupt
        return np.asarray(batch.reshape(len(batch), -1) @ WEIGHTS)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Slow:
    return Slow(monkeypatch)


def slow_spec(**changes: Any) -> RunSpec:
    settings: dict[str, Any] = {"model": "m", "data": "d", "sigma": 0.5, "num_classes": CLASSES, "n": 500, "n0": 40}
    return RunSpec(**{**settings, "batch_size": 8, **changes})


def draw(slow: Slow, out: Path, **changes: Any) -> Summary:
    return sample(slow_spec(**changes), as_classifier(slow, num_classes=CLASSES), from_arrays(X), out)


def contents(home: Path) -> dict[str, bytes]:
    return {p.relative_to(home).as_posix(): p.read_bytes() for p in sorted(home.rglob("*")) if p.is_file()}


def test_an_interruption_loses_ten_seconds_of_work_at_most(slow: Slow, tmp_path: Path) -> None:
    assert draw(slow, tmp_path / "whole").complete
    kept, done = 0, list[int]()
    for after in (30.0, 47.0, 61.0, 50.0, 70.0, 40.0):
        slow.stop = slow.now + after
        with pytest.raises(Interrupted) as caught:
            draw(slow, tmp_path / "run")
        summary = caught.value.done
        assert summary.lost <= 10 * RATE
        kept += summary.samples - summary.lost
        done.append(summary.inputs_done)
    assert kept > 3 * 540
    assert done == sorted(done)
    assert done[-1] >= 3
    assert open_evidence(tmp_path / "run").counts().ids == tuple(map(str, range(done[-1])))
    before = slow.now
    last = draw(slow, tmp_path / "run")
    assert last.complete
    # Beside what is new: the probe, twice and once more, and the rows of the first batch that are run again.
    assert slow.now - before - last.samples / RATE <= (3 * 6 * 4 + 8) / RATE
    assert kept + last.samples == 6 * 540
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


def test_an_interrupt_between_two_pieces_keeps_what_is_counted(
    slow: Slow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes as the clock is read after a piece, when its votes are counted."""
    looks = list[int]()

    def clock() -> float:
        if sys._getframe(1).f_code.co_name == "_draw_in_pieces":
            looks.append(1)
            if len(looks) == 4:
                raise KeyboardInterrupt
        return slow.now

    monkeypatch.setattr("time.monotonic", clock)
    with pytest.raises(Interrupted) as caught:
        draw(slow, tmp_path / "run")
    assert (caught.value.done.under_way, caught.value.done.lost) == (40, 0)
    assert draw(slow, tmp_path / "run").complete


def interrupted(slow: Slow, out: Path) -> Path:
    slow.stop = slow.now + 60.0
    with pytest.raises(Interrupted):
        draw(slow, out)
    assert (out / BEGUN).is_file()
    return out


def test_votes_of_another_model_are_not_gone_on_with(slow: Slow, tmp_path: Path) -> None:
    out = interrupted(slow, tmp_path / "run")
    other = as_classifier(lambda batch: slow(batch) * np.float32(1.5), num_classes=CLASSES)
    with pytest.raises(StoreError, match="another model"):
        sample(slow_spec(), other, from_arrays(X), out)
    with pytest.raises(StoreError, match=r"n: 500 in the folder, 400 asked for; .*; give the settings of the folder"):
        draw(slow, out, n=400)
    made = sample(slow_spec(), other, from_arrays(X), out, allow_other_model=True)
    assert (made.complete, made.samples) == (True, 6 * 540)


def test_votes_of_an_input_that_a_shard_holds_whole_are_removed(slow: Slow, tmp_path: Path) -> None:
    """As if the process was killed after the shard's seal got its name and before the votes so far were removed."""
    left = (interrupted(slow, tmp_path / "run") / BEGUN).read_bytes()
    draw(slow, tmp_path / "run")
    before = contents(tmp_path / "run")
    (tmp_path / "run" / BEGUN).write_bytes(left)
    made = draw(slow, tmp_path / "run")
    assert (made.complete, made.samples, made.under_way) == (True, 0, 0)
    assert contents(tmp_path / "run") == before


@pytest.mark.parametrize("change", ["cut", "more votes", "another input"])
def test_damaged_votes_are_refused_and_set_aside(slow: Slow, tmp_path: Path, change: str) -> None:
    from buckler.files import read_sealed, write_sealed

    out = interrupted(slow, tmp_path / "run")
    if change == "cut":
        (out / BEGUN).write_bytes((out / BEGUN).read_bytes()[:-5])
    elif change == "more votes":
        values = read_sealed(out / BEGUN)
        values["votes"][0][2] += 1
        write_sealed(out / BEGUN, values)
    else:
        write_sealed(out / BEGUN, {**read_sealed(out / BEGUN), "first": 1})
    with pytest.raises(DamagedEvidence, match=BEGUN):
        draw(slow, out)
    with pytest.warns(UserWarning, match=f"set aside .*{BEGUN}"):
        made = sample(slow_spec(), as_classifier(slow, num_classes=CLASSES), from_arrays(X), out, repair=True)
    assert (made.complete, made.samples) == (True, 6 * 540)


def test_settings_may_change_while_nothing_is_drawn(slow: Slow, tmp_path: Path) -> None:
    out = tmp_path / "run"
    model = as_classifier(slow, num_classes=CLASSES)
    assert sample(slow_spec(), model, from_arrays(X), out, max_samples=1).samples == 0
    assert sample(slow_spec(n=50, sigma=0.25), model, from_arrays(X), out).complete
    with pytest.raises(StoreError, match="n: 50 in the folder, 500 asked for"):
        draw(slow, out)


def test_decisions_are_finished_in_order_and_kept(slow: Slow, tmp_path: Path) -> None:
    out, target = tmp_path / "decided.parquet", Target((0.01,))
    made, model, data = slow_spec(n0=0, n=2000), as_classifier(slow, num_classes=CLASSES), from_arrays(X)
    whole, drawn = decide(made, target, model, data), list[int]()
    slow.stop = slow.now + sum(d.certificate.n for d in whole) / RATE * 0.7
    with pytest.raises(Interrupted) as caught:
        decide(made, target, model, data, out, progress=lambda _, count: drawn.append(count))
    kept = read_decisions(out).decided
    finished = [d.certificate.id for d in kept if d.decision != "undecided"]
    assert caught.value.done == list(kept)
    assert {"0", "1"} <= set(finished)
    again = list[int]()
    assert decide(made, target, model, data, out, progress=lambda _, count: again.append(count)) == whole
    lost = drawn[-1] + again[-1] - sum(d.certificate.n for d in whole)
    largest = max(d.certificate.n for d in whole) / 8  # one look at one input may be larger than ten seconds of work
    assert lost <= max(10 * RATE, largest)
