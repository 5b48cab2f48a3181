"""Whether a run may go on with the classifier, environment and data at hand, and who has drawn for it.

In the environment that gave them, a classifier's answers must come again to the bit; in another, on request, nearly.
Under ``drawn_by`` the manifest lists the classifiers and environments that drew for the run: first the one that began
it, then those admitted later, with the request that admitted them and how far their answers were from the nearest known
ones. Seals name the classifier and the environment too, in case the manifest is lost.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from buckler.errors import DamagedEvidence, StoreError
from buckler.runs.identity import NAMES_HASH, Identity
from buckler.runs.spec import difference
from buckler.sampling.probe import Answers, answers_from

NAMES = frozenset({"model", "denoiser", "data", "labels"})
"""Fields of a specification that are mere names: what they stand for is compared itself."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """What may be other than it was: the environment, the answers nearly the same; or the model, whatever it says."""

    any_environment: bool = False
    another_model: bool = False


def entries(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a manifest's ``drawn_by``; of an earlier version, what it knew of its classifier and environment."""
    found = manifest.get("drawn_by")
    if found is None:
        return [{"classifier": manifest["owner"]["classifier"], "environment": manifest["environment"], "files": {}}]
    kinds = {"classifier": str, "environment": dict, "files": dict}
    if not isinstance(found, list) or not found:
        raise DamagedEvidence("the manifest is damaged: it does not say who drew")
    for entry in found:
        if not isinstance(entry, dict) or any(not isinstance(entry.get(key), kind) for key, kind in kinds.items()):
            raise DamagedEvidence("the manifest is damaged: it does not say who drew")
    return found


def admit(root: Path, known: list[dict[str, Any]], asked: Identity, allowed: Allowed, dtype: str) -> dict[str, Any]:
    """Return the entry of ``asked``, a known or a new one; or say what differs.

    One model keeps its first name in every environment, and its shards bear it.
    """
    here = [entry for entry in known if entry["environment"] == dict(asked.environment)]
    for entry in here:
        if _is_same(entry, asked):
            return entry
    if not here and not allowed.any_environment:
        changes = difference(known[0]["environment"], asked.environment)
        raise StoreError(
            f"{str(root)!r} was begun in another environment: {changes}; "
            "draws would not be the same bytes; use another folder (any_environment goes on all the same)"
        )
    nearest, apart, where = _nearest(known, asked)
    new = {**asked.as_dict(), **({} if nearest is None else {"difference": apart, "at_input": where})}
    if nearest is None:
        nearest = next((entry for entry in known if entry["classifier"] == asked.classifier), None)
    if nearest is not None and allowed.any_environment and _is_close(nearest, asked, dtype):
        new |= {"classifier": nearest["classifier"], "because": "any_environment"}
    elif allowed.another_model:
        new |= {"because": "another_model"}
    else:
        raise StoreError(f"{str(root)!r} was begun with another classifier: {_change(known, asked, allowed, dtype)}")
    return new


def from_seals(seals: list[dict[str, Any]], asked: Identity) -> list[dict[str, Any]]:
    """Return the entries of a run whose manifest is lost: what its shards say of who drew them."""
    known: list[dict[str, Any]] = []
    merged = [(seal, seal["parts"] if isinstance(seal.get("parts"), list) else [seal]) for seal in seals]
    for seal, part in [(seal, part) for seal, parts in merged for part in parts if isinstance(part, dict)]:
        drawn = {"classifier": part.get("classifier"), "environment": part.get("environment")}
        if not isinstance(drawn["classifier"], str) or not isinstance(drawn["environment"], dict):
            drawn = {"classifier": str(seal["owner"].get("classifier")), "environment": {}}  # of an earlier version
        is_asked = (drawn["classifier"], drawn["environment"]) == (asked.classifier, dict(asked.environment))
        entry = asked.as_dict() if is_asked else {**drawn, "files": {}, "because": "found in shards"}
        if entry not in known:
            known.append(entry)
    return known or [asked.as_dict()]


def check_data(root: Path, manifest: Mapping[str, Any], asked: Identity) -> None:
    """Refuse other ids or labels than those of a run, and other values of the inputs that its classifier was asked."""
    there = str(manifest["owner"]["data"])
    # An earlier version hashed data in another way; the inputs that were drawn are compared all the same.
    is_comparable = asked.answers is None or there.startswith(NAMES_HASH)
    if there != asked.data and is_comparable:
        raise StoreError(f"{str(root)!r} was begun with another data set: ids or labels differ; use another folder")
    for entry in entries(manifest):
        heard, now = _answers(entry), asked.answers
        changed = [k for k, v in (now.inputs if heard and now else {}).items() if heard and heard.inputs.get(k, v) != v]
        if changed:
            raise StoreError(
                f"{str(root)!r} was begun with another data set: input {changed[0]!r} has other values; "
                "use another folder"
            )


def _answers(entry: Mapping[str, Any]) -> Answers | None:
    try:
        return None if entry.get("answers") is None else answers_from(entry["answers"])
    except ValueError as problem:
        raise DamagedEvidence(f"the manifest is damaged: {problem}") from None


def _is_same(entry: Mapping[str, Any], asked: Identity) -> bool:
    heard = _answers(entry)
    if heard is None or asked.answers is None:
        return bool(entry["classifier"] == asked.classifier)
    return (
        heard.hash == asked.answers.hash and heard.logits.shape == asked.answers.logits.shape and _files(entry, asked)
    )


def _files(entry: Mapping[str, Any], asked: Identity) -> bool:
    """Return whether the files are the same, whatever they are called."""
    return sorted(map(str, entry["files"].values())) == sorted(asked.files.values())


def _is_close(entry: Mapping[str, Any], asked: Identity, dtype: str) -> bool:
    heard = _answers(entry)
    if heard is None or asked.answers is None:
        return bool(entry["classifier"] == asked.classifier)
    if not _files(entry, asked):
        return False
    if not heard.repeatable or not asked.answers.repeatable:
        return heard.repeatable == asked.answers.repeatable and heard.logits.shape == asked.answers.logits.shape
    return heard.is_close(asked.answers, dtype)


def _nearest(known: list[dict[str, Any]], asked: Identity) -> tuple[dict[str, Any] | None, float | None, str]:
    """Return the known entry whose answers are nearest, how far they are, and at which input; None if out of reach."""
    found = [(heard.distance(asked.answers), e) for e in known if asked.answers and (heard := _answers(e))]
    if not found:
        return None, None, ""
    (apart, where), entry = min(found, key=lambda pair: pair[0][0])
    return entry, apart if apart < float("inf") else None, where


def _change(known: list[dict[str, Any]], asked: Identity, allowed: Allowed, dtype: str) -> str:
    """Return what differs, and what to do."""
    override = "use another folder, or go on all the same with another_model, which is recorded"
    nearest, apart, where = _nearest(known, asked)
    if asked.answers is None:
        return f"{known[0]['classifier']} there, {asked.classifier} now"
    if nearest is None:
        return f"its answers are not kept (an earlier version, or a lost manifest), so none can be compared; {override}"
    if not _files(nearest, asked):
        changed = sorted(k for k, v in asked.files.items() if v not in nearest["files"].values())
        return f"{', '.join(map(repr, changed)) or 'a file of its weights'} is not the file that began it; {override}"
    heard = _answers(nearest)
    if apart is None or heard is None:
        return f"it has {asked.answers.logits.shape[1]} classes now; {override}"
    if not heard.repeatable or not asked.answers.repeatable:
        now, before = ("repeats", "did not") if asked.answers.repeatable else ("does not repeat", "did")
        return f"it {now} its answers, and that one {before}; {override}"
    told = f"its logits differ by up to {apart:.3g} (the largest is {abs(heard.logits).max():.3g}), at input {where!r}"
    if _is_close(nearest, asked, dtype) and not allowed.any_environment:
        return f"{told}; if that is rounding (other threads, say), any_environment goes on, which is recorded"
    return f"{told}; {override}"
