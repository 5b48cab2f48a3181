"""Inputs found again in their data, and compared with what was drawn: the shards hold a hash of each input's values."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from buckler.errors import InvalidInput
from buckler.sampling.datasets import Dataset
from buckler.sampling.noise import content_id
from buckler.types import Float32Array

AT_ONCE = 128
"""Inputs in memory at once."""


def found_again(
    dataset: Dataset, ids: Sequence[str], contents: Sequence[str] | None, where: Path
) -> Iterator[Float32Array]:
    """Yield the inputs with these ids one by one; one whose values are not those of the hashes is refused.

    An empty hash is not known and not compared.
    """
    places = {name: i for i, name in enumerate(dataset.ids)}
    missing = next((name for name in ids if name not in places), None)
    if missing is not None:
        raise InvalidInput(f"data must hold every input of {str(where)!r}; it has no {missing!r}")
    chosen = [places[name] for name in ids]
    for start in range(0, len(chosen), AT_ONCE):
        part = chosen[start : start + AT_ONCE]
        if part == list(range(part[0], part[0] + len(part))):
            inputs = list(dataset.load(part[0], part[0] + len(part)))
        else:
            inputs = [dataset.load(place, place + 1)[0] for place in part]
        for i, x in enumerate(inputs, start):
            if contents is not None and contents[i] and content_id(x) != contents[i]:
                raise InvalidInput(f"data is not what was certified in {str(where)!r}: {ids[i]!r} has other values")
            yield x


def contents_hash(pairs: Iterable[tuple[str, str]]) -> str | None:
    """Return the hash of ids with the hashes of their inputs, in whatever order they come; None if one is not known."""
    known = sorted(pairs)
    if not all(content for _, content in known):
        return None
    digest = hashlib.blake2b(digest_size=20, person=b"buckler-inputs-1")
    for name, content in known:
        digest.update(f"{len(name)}:{name}={content};".encode("utf-8", "surrogatepass"))
    return f"inputs:{digest.hexdigest()}"
