"""Drawing until decided into a file: from a program, resumed, refused where it is another run."""

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from buckler.certificates import Certificates
from buckler.certify.ladder import Ladder
from buckler.certify.sequential import AnytimeTest, Decided
from buckler.certify.votes import certify_votes
from buckler.errors import BucklerError, InvalidInput, StoreError
from buckler.noise import Gaussian
from buckler.report.pages import build_page
from buckler.runs import decide as module
from buckler.runs.decide import Target, decide, settings_to_decide
from buckler.runs.results import read_result
from buckler.runs.spec import FOR_EVIDENCE, RunSpec
from buckler.runs.store.tables import (
    Drawing,
    read_certificates,
    read_decisions,
    read_origin,
    write_certificates,
    write_decisions,
)
from buckler.sampling.classifiers import as_classifier
from buckler.sampling.datasets import Dataset, from_arrays
from buckler.sampling.engine import Engine, draw_until_decided
from buckler.types import AnyArray
from tests.cli.test_options import commands, options_of
from tests.report.test_html import Parsed
from tests.runs.victim import rewrite

WEIGHTS = np.random.default_rng(0).normal(size=(6, 4)).astype("f4")
X = np.random.default_rng(1).uniform(size=(40, 6)).astype("f4")
LABELS = (X @ WEIGHTS).argmax(axis=1)
TARGET = Target((0.05, 0.1, 0.2))


def linear(batch: AnyArray) -> AnyArray:
    return np.asarray(batch @ WEIGHTS)


def spec(**changes: Any) -> RunSpec:
    fields: dict[str, Any] = {"model": "m", "data": "d", "sigma": 0.25, "num_classes": 4, "n": 800}
    return RunSpec(batch_size=64, **fields | changes)


def data() -> Dataset:
    return from_arrays(X, LABELS)


def call(out: Path | None = None, target: Target = TARGET, model: Any = linear, **changes: Any) -> list[Decided]:
    return decide(spec(**changes), target, as_classifier(model, num_classes=4), data(), out)


def test_every_input_is_decided_and_kept_with_its_votes(tmp_path: Path) -> None:
    out = tmp_path / "decided.parquet"
    found = call(out)
    assert [d.certificate.id for d in found] == [str(i) for i in range(40)]
    assert {d.decision for d in found} == {"certified", "given up"}
    assert {d.certificate.radius for d in found} == {0.0, 0.05, 0.1, 0.2}
    assert read_decisions(out).decided == found
    assert read_certificates(out) == [d.certificate for d in found]
    assert call() == found


def test_what_is_there_is_not_drawn_again_and_the_rest_comes_to_the_same(tmp_path: Path) -> None:
    out = tmp_path / "decided.parquet"
    whole = call(out)
    bytes_ = out.read_bytes()
    rewrite(out, pq.read_table(out).slice(5, 25))
    watched: list[tuple[int, int]] = []
    again = decide(
        spec(), TARGET, as_classifier(linear, num_classes=4), data(), out, progress=lambda *told: watched.append(told)
    )
    assert again == whole
    assert out.read_bytes() == bytes_
    assert watched[0] == (25, 0)
    assert watched[-1] == (40, sum(d.certificate.n for d in [*whole[:5], *whole[30:]]))
    before = out.stat().st_mtime_ns
    assert call(out) == whole
    assert out.stat().st_mtime_ns == before


class Stops:
    """Raises in the course of drawing, once half of the inputs may have been decided."""

    def __init__(self, problem: type[BaseException], after: int) -> None:
        self.problem, self.left = problem, after

    def __call__(self, batch: AnyArray) -> AnyArray:
        self.left -= 1
        if self.left < 0:
            raise self.problem
        return linear(batch)


@pytest.mark.parametrize("problem", [KeyboardInterrupt, RuntimeError])
def test_an_interrupt_or_an_error_keeps_what_is_decided(tmp_path: Path, problem: type[BaseException]) -> None:
    out, whole = tmp_path / "decided.parquet", call()
    watched: list[tuple[int, int]] = []
    with pytest.raises((KeyboardInterrupt, BucklerError)):
        decide(
            spec(),
            TARGET,
            as_classifier(Stops(problem, 60), num_classes=4),
            data(),
            out,
            progress=lambda *told: watched.append(told),
        )
    kept = {d.certificate.id: d for d in read_decisions(out).decided}
    ended = {name: d for name, d in kept.items() if d.decision != "undecided"}
    assert 0 < len(ended) < len(kept)
    assert watched[-1][0] == len(ended)
    assert all(d in whole for d in ended.values())
    # The votes of inputs under way are there, and what follows is as if nothing had happened.
    drawn: list[int] = []
    assert progressing(out, drawn) == whole
    assert drawn[-1] == sum(d.certificate.n for d in whole) - sum(d.certificate.n for d in kept.values())


def progressing(out: Path, drawn: list[int], **changes: Any) -> list[Decided]:
    classifier = as_classifier(linear, num_classes=4)
    return decide(spec(**changes), TARGET, classifier, data(), out, progress=lambda _, count: drawn.append(count))


def fresh(n: int, final_n: int) -> list[tuple[object, ...]]:
    """The same draws through a test of one's own: how each input ended."""
    engine = Engine(as_classifier(linear, num_classes=4), sigma=0.25, batch_size=64)
    ids = [str(i) for i in range(40)]
    with engine.session():
        test = AnytimeTest(Ladder(TARGET.radii, Gaussian(0.25), 1e-3, n, final_n=final_n, winner=True), 40, 4)
        for _ in draw_until_decided(engine, X, ids, test):
            pass
    return [ended(test.decided(i, ids[i])) for i in range(40)]


def ended(decided: Decided) -> tuple[object, ...]:
    return decided.certificate, decided.decision, decided.votes, decided.certified_at, decided.by_final_test


def test_a_larger_budget_goes_on_by_e_values_and_never_takes_the_final_test_again(tmp_path: Path) -> None:
    out = tmp_path / "decided.parquet"
    first = call(out, n=120)
    assert any(d.by_final_test for d in first)
    later = call(out, n=800)
    assert [ended(d) for d in later] == fresh(800, final_n=120)
    changed = [(a, b) for a, b in zip(first, later, strict=True) if a != b]
    assert any(len(b.certified_at) > len(a.certified_at) for a, b in changed)
    # Whoever passes draw 120 has had its final test there: by_final_test does not grow at any other draw.
    assert all(
        n == 120 for d in later for n in d.certified_at[len(d.certified_at) - d.by_final_test :] if d.by_final_test == 1
    )
    assert all(d.by_final_test == 0 or 120 in d.certified_at for d in later)
    origin = read_origin(out)
    assert origin is not None
    assert (origin["final_n"], origin["spec"]["n"]) == (120, 800)
    before = out.read_bytes()
    assert call(out, n=800) == later
    assert out.read_bytes() == before


def test_a_larger_budget_that_was_interrupted_is_not_forgotten(tmp_path: Path) -> None:
    out = tmp_path / "decided.parquet"
    call(out, n=120)
    with pytest.raises(KeyboardInterrupt):
        call(out, model=Stops(KeyboardInterrupt, 12), n=800)
    assert "undecided" in {d.decision for d in read_decisions(out).decided}
    assert [ended(d) for d in call(out, n=800)] == fresh(800, final_n=120)


class Clock:
    """Time that passes when the classifier is called."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def model(self, batch: AnyArray) -> AnyArray:
        self.now += 1.0
        return linear(batch)


def test_when_the_time_is_up_what_there_is_is_certified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, out, whole = Clock(), tmp_path / "decided.parquet", call()
    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr("buckler.runs.executor.time", clock)
    classifier = as_classifier(clock.model, num_classes=4)
    stopped = decide(spec(), TARGET, classifier, data(), out, max_seconds=60.0)
    assert {"undecided", "given up"} <= {d.decision for d in stopped}
    assert any(d.decision == "undecided" and d.certificate.radius > 0.0 for d in stopped)
    # Certificates of inputs under way are by e-values alone.
    assert all(d.by_final_test == 0 for d in stopped if d.decision == "undecided")
    assert read_decisions(out).decided == stopped
    assert decide(spec(), TARGET, classifier, data(), out) == whole
    with pytest.raises(InvalidInput, match="max_seconds"):
        decide(spec(), TARGET, classifier, data(), out, max_seconds=0.0)


def test_votes_under_way_are_handed_in_from_time_to_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Any] = []
    real = module.Decisions.take

    def spy(self: module.Decisions, made: Any) -> None:
        taken.append(made)
        real(self, made)

    monkeypatch.setattr(module.Decisions, "take", spy)
    call(tmp_path / "seldom.parquet")
    seldom = len(taken)
    monkeypatch.setattr("buckler.session.SAVE_SECONDS", 0.0)
    found = call(tmp_path / "often.parquet")
    assert len(taken) - seldom > seldom
    assert found == call()


def test_a_precision_certifies_as_much_as_there_is(tmp_path: Path) -> None:
    out = tmp_path / "decided.parquet"
    target = Target(precision=0.2)
    found = call(out, target=target, n=20_000)
    assert {"precise"} <= {d.decision for d in found} <= {"precise", "given up"}
    radii = target.ladder(spec(n=20_000)).radii
    for d in found:
        assert d.certificate.radius in {radii[len(d.certified_at) - 1] if d.certified_at else 0.0, 0.0}
    best = {c.id: c for c in certify_votes_at(20_000)}
    near = [d for d in found if d.decision == "precise"]
    # Within a fifth of the estimate: the limit of twenty thousand draws is seldom much further.
    assert np.mean([d.certificate.radius > 0.7 * best[d.certificate.id].radius for d in near]) > 0.9
    assert np.mean([d.certificate.n for d in near]) < 5_000
    assert call(out, target=target, n=20_000) == found
    with pytest.raises(InvalidInput, match="radii must be left out with a precision"):
        Target((0.1,), precision=0.2)
    with pytest.raises(InvalidInput, match="precision must be below 1"):
        Target(precision=1.0)


def certify_votes_at(n: int) -> Certificates:
    engine = Engine(as_classifier(linear, num_classes=4), sigma=0.25, batch_size=4096)
    ids = [str(i) for i in range(40)]
    with engine.session():
        votes = engine.votes(X, ids, "estimation", n)
    return certify_votes(votes, sigma=0.25, alpha=1e-3, ids=ids)


def test_the_probability_margin_is_decided_too(tmp_path: Path) -> None:
    out = tmp_path / "decided.parquet"
    found = call(out, target=Target(TARGET.radii, margin="probability"))
    assert {d.certificate.margin_kind for d in found} == {"probability"}
    assert {d.certificate.margin_kind for d in found} == {"probability"}
    assert read_decisions(out).decided == found
    quantile = call()
    # Few votes go to third classes here, so there is little between the two margins.
    ratio = sum(d.certificate.radius for d in found) / sum(d.certificate.radius for d in quantile)
    assert 0.7 < ratio < 1.1
    with pytest.raises(InvalidInput, match="another margin"):
        call(out)


def test_work_in_hand_is_saved_from_time_to_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    real = write_decisions

    def spy(path: Path, decisions: list[Decided], *rest: Any) -> None:
        sizes.append(len(decisions))
        real(path, decisions, *rest)

    monkeypatch.setattr(module, "write_decisions", spy)
    monkeypatch.setattr("buckler.session.SAVE_SECONDS", 0.0)
    monkeypatch.setattr("buckler.session.SAVING_SHARE", 1e9)
    call(tmp_path / "decided.parquet")
    assert sizes == sorted(sizes)
    assert len(sizes) > 20


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"sigma": 0.3}, "sigma: 0.25 in the folder, 0.3 asked for"),
        ({"n": 700}, "n: 800 in the folder, 700 asked for"),
        ({"target": Target((0.05, 0.1))}, "another radii"),
        ({"target": Target((0.05, 0.1, 0.2), alpha=0.01)}, "another alpha"),
        ({"target": Target((0.05, 0.1, 0.2), certified_class="label")}, "another class"),
        ({"target": Target((0.05, 0.1, 0.2), certified_class="selection"), "n0": 30}, "another spec, class"),
    ],
)
def test_another_run_is_refused_and_not_overwritten(tmp_path: Path, change: dict[str, Any], named: str) -> None:
    out = tmp_path / "decided.parquet"
    call(out)
    before = out.read_bytes()
    with pytest.raises(InvalidInput, match=named):
        call(out, **change)
    assert out.read_bytes() == before


def test_another_precision_is_refused(tmp_path: Path) -> None:
    call(tmp_path / "decided.parquet", Target(precision=0.3))
    with pytest.raises(InvalidInput, match="another precision"):
        call(tmp_path / "decided.parquet", Target(precision=0.4))


def test_another_environment_is_refused_or_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "decided.parquet"
    with monkeypatch.context() as patch:
        patch.setattr("buckler.runs.identity.environment", lambda _: {"numpy": "0.9"})
        found = call(out)
    rewrite(out, pq.read_table(out).slice(0, 20))
    with pytest.raises(StoreError, match=r"another model: numpy: '0\.9' then, .* use another file, or allow"):
        call(out)
    classifier = as_classifier(linear, num_classes=4)
    assert decide(spec(), TARGET, classifier, data(), out, allow_other_model=True) == found
    origin = read_origin(out)
    assert origin is not None
    assert [entry["environment"]["numpy"] for entry in origin["drawn_by"]] == ["0.9", np.__version__]
    assert [drawing.drawn_by for drawing in read_decisions(out).drawings] == [0] * 20 + [1] * 20
    assert call(out) == found


def test_certificates_that_are_not_decisions_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "decided.parquet"
    found = call(out)
    origin = read_origin(out)
    assert origin is not None
    write_certificates(out, [d.certificate for d in found], origin)
    with pytest.raises(InvalidInput, match="decisions must be a table of buckler decide"):
        call(out)
    write_decisions(out, call(target=Target((0.07,))), [Drawing("x", 0)] * 40, origin)
    with pytest.raises(InvalidInput, match="not of this run"):
        call(out)
    out.write_text("something else")
    with pytest.raises(InvalidInput):
        call(out)
    assert out.read_text() == "something else"


def test_the_class_is_the_winner_selected_or_the_label(tmp_path: Path) -> None:
    by_label, by_selection = (Target(TARGET.radii, certified_class=rule) for rule in ("label", "selection"))
    won, labelled, selected = call(), call(target=by_label), call(target=by_selection, n0=30)
    assert [
        {(d.certificate.n0, d.certificate.winner_alpha > 0.0) for d in made} for made in (won, labelled, selected)
    ] == [{(0, True)}, {(0, False)}, {(30, False)}]
    assert [d.label for d in labelled] == LABELS.tolist()
    # Classes that were selected are kept, and not drawn again.
    out = tmp_path / "decided.parquet"
    with pytest.raises(KeyboardInterrupt):
        call(out, by_selection, Stops(KeyboardInterrupt, 60), n0=30)
    assert "undecided" in {d.decision for d in read_decisions(out).decided}
    assert call(out, by_selection, n0=30) == selected
    for target in (TARGET, by_label):
        with pytest.raises(InvalidInput, match="n0 must be at least 1 for class 'selection', and 0 for others; got 30"):
            call(target=target, n0=30)
    with pytest.raises(InvalidInput, match="n0 must be at least 1"):
        call(target=by_selection)
    with pytest.raises(InvalidInput, match="class must be one of"):
        Target((0.5,), certified_class="lable")  # type: ignore[arg-type]
    unlabelled = from_arrays(X)
    with pytest.raises(InvalidInput, match="needs labels"):
        decide(spec(), Target((0.1,), certified_class="label"), as_classifier(linear, num_classes=4), unlabelled)


def test_settings_that_do_not_apply_are_named() -> None:
    good = {"model": "m", "data": "d", "sigma": 0.25}
    assert settings_to_decide(good, TARGET) == {**good, "n": 100_000}
    selected, labelled = Target((0.1,), certified_class="selection"), Target((0.1,), certified_class="label")
    assert settings_to_decide({**good, "n": 5, "n0": 7}, selected) == {**good, "n": 5, "n0": 7}
    for target in (labelled, TARGET):
        with pytest.raises(InvalidInput, match="n0 must be 0 for class"):
            settings_to_decide({**good, "n0": 7}, target)
    for name in set(FOR_EVIDENCE) - {"checkpoints"}:
        with pytest.raises(InvalidInput, match=f"{name} is for evidence"):
            settings_to_decide({**good, name: 3}, TARGET)
    # A report writes the whole specification out, and the command beside it must take it.
    written = tomllib.loads(spec().to_toml())
    assert settings_to_decide(written, TARGET) == {k: v for k, v in written.items() if k not in FOR_EVIDENCE}


def test_a_report_names_the_command_behind_the_file(tmp_path: Path) -> None:
    out = tmp_path / "decided.parquet"
    call(out, target=Target((0.1,)))
    result = read_result(out)
    assert result.commands == (
        f"buckler decide --radii 0.1 --spec spec.toml --margin quantile --alpha 0.001 --class winner --out {out}",
    )
    assert result.spec_toml is not None
    assert settings_to_decide(tomllib.loads(result.spec_toml), Target((0.1,)))["n"] == 800


def test_a_report_names_the_precision_behind_the_file(tmp_path: Path) -> None:
    out = tmp_path / "decided.parquet"
    call(out, target=Target(precision=0.3))
    (command,) = read_result(out).commands
    assert command.startswith("buckler decide --precision 0.3 --spec spec.toml ")
    options = {word for word in command.split() if word.startswith("--")}
    assert options <= options_of(commands()["decide"])


def test_a_report_draws_steps_at_the_radii_that_were_asked_and_knows_the_true_classes(tmp_path: Path) -> None:
    out = tmp_path / "decided.parquet"
    wrong = (LABELS + 1) % 4
    labels = np.where(np.arange(40) % 4 == 0, wrong, LABELS)
    found = decide(spec(), TARGET, as_classifier(linear, num_classes=4), from_arrays(X, labels), out)
    result = read_result(out)
    assert result.asked == TARGET.radii
    # The class that was tested is not the true one for a fourth of them.
    assert result.labels is not None
    assert result.labels.tolist() == labels.tolist() != [d.label for d in found]
    page = build_page([result], delta=0.001, title="")
    payload = Parsed(page).payload
    assert payload["radii"] == ["0.00", "0.05", "0.10", "0.20"]
    share = np.mean([d.certificate.radius >= 0.1 and d.label == y for d, y in zip(found, labels, strict=True)])
    assert float(payload["series"][0]["accuracy"][2]) == pytest.approx(share, abs=1e-3)
    assert float(payload["series"][0]["low"][2]) < share


PROGRAM = """
import sys
import tomllib
from buckler.runs.decide import decide
from buckler.runs.decide import Target, settings_to_decide
from buckler.runs.open_run import open_run, read_settings
target = Target((0.05, 0.1))
with open_run(settings_to_decide(read_settings("run.toml"), target)) as run:
    first = decide(run.spec, target, run.executor, run.dataset, "out.parquet")
    assert decide(run.spec, target, run.executor, run.dataset, "out.parquet") == first
assert not [name for name in sys.modules if name.startswith("buckler.cli")]
"""


def test_a_program_needs_nothing_of_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "made.py").write_text("def make():\n    return lambda batch: batch.reshape(len(batch), -1)[:, 20:30]\n")
    (tmp_path / "run.toml").write_text(
        'model = "made:make"\ndata = "digits"\nsigma = 0.25\nn = 500\nevery = 200\nnum_classes = 10\n'
    )
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=120, cwd=tmp_path)  # noqa: S603
    assert len(read_decisions(tmp_path / "out.parquet").decided) == 9
