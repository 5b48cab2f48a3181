"""Who may go on with a run, condition by condition: each is met, and then not met by one thing alone."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from buckler.errors import DamagedEvidence, StoreError
from buckler.runs.admission import Allowed, admit, check_data, entries, from_seals
from buckler.runs.identity import Identity
from buckler.sampling.probe import DRAWS, Answers

ROOT = Path("run")
HERE, THERE = {"torch": "2.9", "machine": "a"}, {"torch": "2.10", "machine": "a"}
LOGITS = np.linspace(-4.0, 4.0, 2 * DRAWS * 3, dtype=np.float32).reshape(2 * DRAWS, 3)
FILES = {"net.onnx": "sha:1"}
EITHER, OTHER = Allowed(any_environment=True), Allowed(another_model=True)


def answers(logits: Any = LOGITS, *, repeatable: bool = True, values: str = "v1") -> Answers:
    return Answers({"first": "v0", "second": values}, np.asarray(logits, dtype=np.float32), repeatable)


def identity(heard: Answers | None = None, **changes: Any) -> Identity:
    heard = answers() if heard is None else heard
    return replace(Identity(heard.hash, "names:d", HERE, heard, FILES), **changes)


KNOWN = [identity().as_dict()]


def admitted(asked: Identity, allowed: Allowed = Allowed(), known: Any = None) -> dict[str, Any]:  # noqa: B008
    return admit(ROOT, known or KNOWN, asked, allowed, "float32")


def test_the_same_is_the_entry_itself() -> None:
    assert admitted(identity()) is KNOWN[0]
    # Whatever its files are called, and whatever is allowed.
    assert admitted(identity(files={"renamed": "sha:1"}), EITHER) is KNOWN[0]
    two = [identity(answers(-LOGITS)).as_dict(), *KNOWN]
    assert admitted(identity(), known=two) is KNOWN[0]


def test_another_environment_needs_a_permission() -> None:
    with pytest.raises(StoreError, match=r"another environment: torch.*2\.9.*2\.10.*any_environment goes on"):
        admitted(identity(environment=THERE))
    with pytest.raises(StoreError, match="another environment"):
        admitted(identity(environment=THERE), OTHER)
    new = admitted(identity(environment=THERE), EITHER)
    assert (new["environment"], new["because"], new["difference"]) == (THERE, "any_environment", 0.0)
    # One that is known already is asked for nothing, the first of several included.
    both = [*KNOWN, new]
    assert admitted(identity(environment=THERE), known=both) is new
    assert admitted(identity(), known=both) is KNOWN[0]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (identity(answers(LOGITS * 1.5)), r"differ by up to 2 \(the largest is 4\), at input 'first'; use another"),
        (identity(answers(LOGITS * (1 + 1e-5))), r"differ by up to .*; if that is rounding .* any_environment goes on"),
        (identity(files={"a": "sha:2", "b": "sha:1"}), "'a' is not the file that began it; use another folder"),
        (identity(files={}), "a file of its weights is not the file that began it"),
        (identity(answers(LOGITS[:, :2])), "it has 2 classes now; use another folder"),
        (identity(answers(repeatable=False)), "it does not repeat its answers, and that one did; use another"),
    ],
)
def test_what_differs_is_named(asked: Identity, said: str) -> None:
    with pytest.raises(StoreError, match=f"begun with another classifier: .*{said}"):
        admitted(asked)
    new = admitted(asked, OTHER)
    assert (new["because"], new["classifier"]) == ("another_model", asked.classifier)
    assert new["at_input"] in {"first", "second"}
    wide = asked.answers is not None and asked.answers.logits.shape == LOGITS.shape
    assert (new["difference"] is not None) == wide


def test_nearly_the_same_is_close_in_everything() -> None:
    """With the permission rounding is let in, under the first name; other files, classes or manners are not."""
    near = identity(answers(LOGITS * (1 + 1e-5)))
    new = admitted(near, EITHER)
    assert new["classifier"] == KNOWN[0]["classifier"] != near.classifier
    assert (new["because"], new["at_input"]) == ("any_environment", "first")
    assert 0.0 < new["difference"] < 1e-4
    far = identity(answers(LOGITS * 1.5))
    with pytest.raises(StoreError, match="go on all the same with another_model"):
        admitted(far, EITHER)
    for asked in (
        replace(near, files={"net.onnx": "sha:2"}),
        identity(answers(LOGITS[:, :2])),
        identity(answers(repeatable=False)),
    ):
        with pytest.raises(StoreError, match="another classifier"):
            admitted(asked, EITHER)
    # Of several the nearest counts, and is named.
    both = [identity(answers(-LOGITS)).as_dict(), *KNOWN]
    assert admitted(near, EITHER, both)["classifier"] == KNOWN[0]["classifier"]
    assert admitted(near, EITHER, both[::-1])["classifier"] == KNOWN[0]["classifier"]


def test_a_classifier_that_does_not_repeat_itself() -> None:
    restless = identity(answers(LOGITS * 2, repeatable=False))
    known = [identity(answers(repeatable=False)).as_dict()]
    assert admitted(restless, known=known) is known[0]
    elsewhere = replace(restless, environment=THERE)
    assert admitted(elsewhere, EITHER, known)["because"] == "any_environment"
    for asked in (replace(restless, files={}), identity(answers(LOGITS[:, :2], repeatable=False))):
        with pytest.raises(StoreError, match="another classifier"):
            admitted(asked, EITHER, known)
    with pytest.raises(StoreError, match="it repeats its answers, and that one did not"):
        admitted(identity(), EITHER, known)


def test_without_answers_the_name_counts() -> None:
    """A log of votes, or an entry of an earlier version: one name is the same, another is not."""
    log = Identity("log:1", "d", HERE)
    known = [log.as_dict()]
    assert admitted(log, known=known) is known[0]
    with pytest.raises(StoreError, match="log:1 there, log:2 now"):
        admitted(replace(log, classifier="log:2"), known=known)
    assert "difference" not in admitted(replace(log, classifier="log:2"), OTHER, known)
    assert admitted(replace(log, environment=THERE), EITHER, known)["because"] == "any_environment"
    with pytest.raises(StoreError, match="another classifier"):
        admitted(replace(log, classifier="log:2", environment=THERE), EITHER, known)
    with pytest.raises(StoreError, match="its answers are not kept"):
        admitted(identity(), known=known)
    # A model whose answers are at hand is not the log that bears another name, and is the entry that bears its own.
    named = [{**log.as_dict(), "classifier": identity().classifier}]
    assert admitted(identity(), known=named) is named[0]


def manifest(**changes: Any) -> dict[str, Any]:
    return {"owner": {"data": "names:d", "classifier": "c"}, "environment": HERE, "drawn_by": KNOWN, **changes}


def test_entries_of_a_manifest() -> None:
    assert entries(manifest()) == KNOWN
    old = manifest()
    del old["drawn_by"]
    assert entries(old) == [{"classifier": "c", "environment": HERE, "files": {}}]
    broken = [{**KNOWN[0], key: None} for key in ("classifier", "environment", "files")]
    for drawn_by in ([], {}, "x", [None], *([*KNOWN, entry] for entry in broken)):
        with pytest.raises(DamagedEvidence, match="does not say who drew"):
            entries(manifest(drawn_by=drawn_by))


def test_data_that_differ_are_refused() -> None:
    check_data(ROOT, manifest(), identity())
    with pytest.raises(StoreError, match="ids or labels differ"):
        check_data(ROOT, manifest(), identity(data="names:e"))
    with pytest.raises(StoreError, match="input 'second' has other values"):
        check_data(ROOT, manifest(), identity(answers(values="v2")))
    # A hash of an earlier version is not compared where values are; where there are none it is all there is.
    old = manifest(owner={"data": "older", "classifier": "c"})
    check_data(ROOT, old, identity())
    with pytest.raises(StoreError, match="ids or labels differ"):
        check_data(ROOT, old, Identity("log", "d"))
    # Inputs that the other was not asked about say nothing.
    fewer = Answers({"third": "v9"}, LOGITS[:DRAWS], repeatable=True)
    check_data(ROOT, manifest(), identity(fewer))
    check_data(ROOT, manifest(drawn_by=[Identity("log", "names:d", HERE).as_dict()]), identity())
    check_data(ROOT, manifest(), Identity("log", "names:d", HERE))
    with pytest.raises(DamagedEvidence, match="the manifest is damaged: not the answers"):
        check_data(ROOT, manifest(drawn_by=[{**KNOWN[0], "answers": {}}]), identity())


def test_entries_from_seals() -> None:
    asked = identity()
    seal = {"owner": {"classifier": "c"}, "classifier": asked.classifier, "environment": HERE}
    assert from_seals([], asked) == [asked.as_dict()]
    assert from_seals([seal, dict(seal)], asked) == [asked.as_dict()]
    elsewhere = {**seal, "environment": THERE}
    found = {"classifier": asked.classifier, "environment": THERE, "files": {}, "because": "found in shards"}
    assert from_seals([seal, elsewhere], asked) == [asked.as_dict(), found]
    # Merged shards say it part by part; seals of an earlier version say the owner alone.
    assert from_seals([{"owner": {"classifier": "c"}, "parts": [seal, elsewhere, None]}], asked)[1] == found
    for old in ({"owner": {"classifier": "c"}}, {**seal, "environment": None}, {**seal, "classifier": 3}):
        assert from_seals([old], asked) == [{**found, "classifier": "c", "environment": {}}]
