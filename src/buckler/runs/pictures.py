"""The inputs of a result, found again in their data and compared with what was certified."""

from collections.abc import Iterator

from buckler.errors import InvalidInput
from buckler.results import Result
from buckler.sampling.datasets import Dataset
from buckler.sampling.noise import Float32Array, content_id

BLOCK = 128
"""Inputs in memory at once."""


def inputs_of(dataset: Dataset, result: Result) -> Iterator[Float32Array]:
    """Yield the inputs of a result one by one, in its order.

    An input whose values are not those that were certified is refused where the run kept their hashes: a picture of
    something else beside a certificate would be worse than none.
    """
    where = {name: i for i, name in enumerate(dataset.ids)}
    missing = next((name for name in result.ids if name not in where), None)
    if missing is not None:
        raise InvalidInput(f"data must hold every input of {str(result.path)!r}; it has no {missing!r}")
    places = [where[name] for name in result.ids]
    for start in range(0, len(places), BLOCK):
        part = places[start : start + BLOCK]
        if part == list(range(part[0], part[0] + len(part))):
            block = list(dataset.load(part[0], part[0] + len(part)))
        else:
            block = [dataset.load(place, place + 1)[0] for place in part]
        for i, x in enumerate(block, start):
            if result.contents is not None and content_id(x) != result.contents[i]:
                raise InvalidInput(f"data is not what was certified: input {result.ids[i]!r} has other values")
            yield x
