"""A file of any-time certificates that grows as inputs are decided, and knows what it was drawn from.

Its record says what was asked (specification, target, alpha, class), who drew (``admission``) and from which inputs, so
that the same call goes on where it ended and another one is refused.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from buckler.errors import InvalidInput
from buckler.records import Certificate
from buckler.runs.admission import NAMES, Allowed, admit, check_data, entries
from buckler.runs.contents import contents_hash, found_again
from buckler.runs.identity import Identity
from buckler.runs.provenance import Drawn, drawn_from, pairs_of
from buckler.runs.store.certificates import read_certificates, read_origin, write_certificates
from buckler.sampling.datasets import Dataset
from buckler.sampling.noise import Float32Array, content_id


class DecidedFile:
    """The certificates decided so far; without a path they are kept in memory alone."""

    def __init__(
        self, path: Path | None, asked: Mapping[str, Any], identity: Identity, dataset: Dataset, allowed: Allowed
    ) -> None:
        """Open the file, or begin it; ``asked`` holds ``spec`` and whatever else the decisions depend on."""
        self.kept: dict[str, Certificate] = {}
        self._path, self._asked, self._data = path, dict(asked), identity.data
        self._contents: dict[str, str] = {}
        self._entry: Mapping[str, Any] = identity.as_dict()
        self._known: list[dict[str, Any]] = []
        self._environments: Counter[Any] = Counter()
        self._classifiers: Counter[str] = Counter()
        if path is not None and path.exists():
            self._go_on(path, read_origin(path) or {}, identity, dataset, allowed)

    def loaded(self, ids: Sequence[str], x: Float32Array) -> None:
        """Take note of the values that inputs are drawn from."""
        self._contents.update(zip(ids, map(content_id, x), strict=True))

    def add(self, certificate: Certificate) -> None:
        """Keep a certificate that was decided now."""
        self.kept[certificate.id] = certificate
        self._environments[pairs_of(self._entry["environment"])] += 1
        self._classifiers[str(self._entry["classifier"])] += 1

    def save(self) -> None:
        """Write all that was decided, whole or not at all."""
        if self._path is None:
            return
        drew = self._known if self._entry in self._known else [*self._known, dict(self._entry)]
        record = {
            **self._asked,
            "owner": {"classifier": drew[0]["classifier"], "data": self._data},
            "environment": drew[0]["environment"],
            "drawn_by": drew,
            "drawn": Drawn(self._environments, self._classifiers, "input").as_dict(),
            "inputs": contents_hash((name, self._contents[name]) for name in self.kept),
        }
        write_certificates(self._path, list(self.kept.values()), record)

    def _go_on(
        self, path: Path, found: Mapping[str, Any], identity: Identity, dataset: Dataset, allowed: Allowed
    ) -> None:
        """Take over the certificates of an earlier call, or say what differs; others are not overwritten."""
        differing = [key for key, value in self._asked.items() if _unnamed(found.get(key)) != _unnamed(value)]
        if differing:
            raise InvalidInput(f"{str(path)!r} holds certificates of another run (another {', '.join(differing)})")
        drawn = drawn_from(found)
        if drawn is None or "drawn_by" not in found or not isinstance(found.get("owner"), dict):
            raise InvalidInput(f"{str(path)!r} does not say what it was drawn from, so it cannot be gone on with")
        check_data(path, found, identity)
        self._known = entries(found)
        self._entry = admit(path, self._known, identity, allowed, str(self._asked["spec"].get("dtype", "float32")))
        self._environments, self._classifiers = Counter(drawn.environments), Counter(drawn.classifiers)
        self.kept = {certificate.id: certificate for certificate in read_certificates(path)}
        for name, x in zip(self.kept, found_again(dataset, list(self.kept), None, path), strict=True):
            self._contents[name] = content_id(x)
        if contents_hash(self._contents.items()) != found.get("inputs"):
            raise InvalidInput(f"{str(path)!r} holds certificates of another data set: some input has other values")


def _unnamed(value: Any) -> Any:
    """Return a specification without its mere names, and anything else as it is."""
    return {k: v for k, v in value.items() if k not in NAMES} if isinstance(value, dict) else value
