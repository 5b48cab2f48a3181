"""Who drew for a run: which classifiers, in which environments. The seals say it, not the manifest."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from buckler.runs.store.decisions import Drawing
from buckler.runs.store.evidence import Evidence
from buckler.runs.store.folder import replayed_of

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Sources:
    """Environments and classifiers, each with the number of inputs that it drew.

    ``replayed`` are rows that were run again elsewhere, and how many of them gave other bits.
    """

    environments: Mapping[Pairs, int]
    classifiers: Mapping[str, int]
    replayed: tuple[int, int] = (0, 0)

    def facts(self) -> dict[str, str]:
        """Return each version and device, with its inputs where there is more than one."""
        names = dict.fromkeys(name for pairs in self.environments for name, _ in pairs)
        return {name: self._counted(self._values(name)) for name in names}

    def sentence(self) -> str:
        """Return what a reader must know: nothing, for a run drawn by one classifier in one environment."""
        said = []
        if len(self.environments) > 1:
            changes = {name: values for name in self.facts() if len(values := self._values(name)) > 1}
            listed = "; ".join(f"{name} {self._counted(values)}" for name, values in changes.items())
            said.append(f"It was drawn in {len(self.environments)} environments: {listed}.")
        if len(self.classifiers) > 1:
            shares = ", ".join(map(str, self.classifiers.values()))
            said.append(
                f"It was drawn by {len(self.classifiers)} different classifiers ({shares} inputs): "
                "each certificate is about the one that drew its input."
            )
        if self.replayed[1]:
            compared, differed = self.replayed
            said.append(f"It is NOT bit-stable: {differed:,} of {compared:,} rows run again elsewhere gave other bits.")
        return " ".join(said)

    def _values(self, name: str) -> Counter[str]:
        found: Counter[str] = Counter()
        for pairs, shards in self.environments.items():
            found[dict(pairs).get(name, "unknown")] += shards
        return found

    def as_dict(self) -> dict[str, Any]:
        """Return this for the record of a file of certificates."""
        environments = [{"environment": dict(pairs), "count": k} for pairs, k in self.environments.items()]
        replayed = {} if self.replayed == (0, 0) else {"replayed": list(self.replayed)}
        return {"environments": environments, "classifiers": dict(self.classifiers), **replayed}

    @staticmethod
    def _counted(values: Mapping[str, int]) -> str:
        if len(values) == 1:
            return next(iter(values))
        return ", ".join(f"{value} ({k:,} input{'s' * (k > 1)})" for value, k in values.items())


def who_drew(evidence: Evidence) -> Sources:
    """Return who drew for a run; what the seals of an earlier version leave out is taken from the manifest."""
    environments: Counter[Pairs] = Counter()
    classifiers: Counter[str] = Counter()
    for part in evidence.parts():
        count = part["count"] if isinstance(part.get("count"), int) else 0
        environments[pairs_of(part.get("environment", evidence.manifest["environment"]))] += count
        classifiers[str(part.get("classifier", evidence.manifest["owner"]["classifier"]))] += count
    return Sources(environments, classifiers, evidence.replayed)


def who_decided(origin: Mapping[str, Any], known: Sequence[Mapping[str, Any]], drawings: Sequence[Drawing]) -> Sources:
    """Return who drew the decisions of a file."""
    environments = Counter(pairs_of(known[drawing.drawn_by]["environment"]) for drawing in drawings)
    classifiers = Counter(str(known[drawing.drawn_by]["classifier"]) for drawing in drawings)
    return Sources(environments, classifiers, replayed_of(origin))


def drawn_from(origin: Mapping[str, Any]) -> Sources | None:
    """Return who drew the run behind a file of certificates, where its record says so."""
    found = origin.get("drawn")
    try:
        if not isinstance(found, dict):
            return None
        environments = {pairs_of(entry["environment"]): int(entry["count"]) for entry in found["environments"]}
        compared, differed = found.get("replayed", (0, 0))
        classifiers = {str(k): int(v) for k, v in found["classifiers"].items()}
        return Sources(environments, classifiers, (int(compared), int(differed)))
    except (KeyError, TypeError, ValueError, AttributeError):
        return None  # a record of someone else's


def pairs_of(environment: Any) -> Pairs:
    """Return an environment as a key."""
    items = environment.items() if isinstance(environment, dict) else ()
    return tuple(sorted((str(name), str(value)) for name, value in items))
