"""Refutations as one Parquet table: a row for each attacked input, with its point and the votes of every candidate."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from buckler.certificate import Bracket, PairTest, Refutation
from buckler.errors import InvalidInput
from buckler.evaluate.pairs import votes_refute
from buckler.files import parse_json
from buckler.noise import named
from buckler.runs.store.tables import read_table, schema, write_table

TRIED = pa.struct(
    [
        ("radius", pa.float64()), ("rival", pa.int64()), ("n", pa.int64()), ("wins", pa.int64()),
        ("losses", pa.int64()), ("refuted", pa.bool_()),
    ]
)  # fmt: skip
SCHEMA = schema(
    {
        "id": "string", "class": "int64", "radius": "double?", "rival": "int64?", "alpha": "double", "noise": "string",
        "noise_parameters": "string", "certified": "double", "certified_alpha": "double", "label": "int64?",
        "tried": pa.list_(TRIED), "point": "binary?",
    }
).append(pa.field("shape", pa.list_(pa.int64())))  # fmt: skip
ROW_BYTES = 1 << 22
"""Bytes of a row at most, in the mean: a point of a million values."""


def write_refutations(path: Path, brackets: Sequence[Bracket], origin: Mapping[str, Any]) -> None:
    """Write all to ``path``, whole or not at all; ``origin`` says what they were made from."""
    rows = []
    for bracket in brackets:
        made = bracket.refutation
        point = None if made.point is None else np.ascontiguousarray(made.point, dtype="<f4")
        rows.append(
            {
                "id": made.id, "class": made.label, "radius": made.radius, "rival": made.rival, "alpha": made.alpha,
                "noise": made.noise.name, "noise_parameters": json.dumps(dict(made.noise.parameters), sort_keys=True),
                "certified": bracket.certified, "certified_alpha": bracket.certified_alpha, "label": bracket.truth,
                "tried": [{name: getattr(test, name) for name in PairTest.__slots__} for test in made.tried],
                "point": None if point is None else point.tobytes(), "shape": None if point is None else point.shape,
            }
        )  # fmt: skip
    write_table(path, pa.Table.from_pylist(rows, schema=SCHEMA), origin)


def read_refutations(path: Path) -> tuple[list[Bracket], dict[str, Any]]:
    """Return the refutations of a table, each validated again, and what they were made from."""
    try:
        table, origin = read_table(path, row_bytes=ROW_BYTES)
        table = table.select(SCHEMA.names).cast(SCHEMA)
        return [_bracket(row) for row in table.to_pylist()], origin
    except (ValueError, KeyError, TypeError, AttributeError, pa.ArrowException) as broken:
        raise InvalidInput(f"refutations must be a table of buckler refute; {str(path)!r}: {broken}") from None


def _bracket(row: Mapping[str, Any]) -> Bracket:
    point = None if row["point"] is None else np.frombuffer(row["point"], dtype="<f4").reshape(row["shape"])
    tried = tuple(PairTest(**test) for test in row["tried"])
    if not all(votes_refute(test, row["alpha"]) for test in tried):
        raise InvalidInput(f"the votes of {row['id']!r} do not bear out its refutation")
    noise = named(row["noise"], parse_json(row["noise_parameters"]))
    made = Refutation(row["id"], row["class"], row["radius"], row["rival"], point, row["alpha"], noise, tried)
    return Bracket(made, row["certified"], row["certified_alpha"], row["label"])
