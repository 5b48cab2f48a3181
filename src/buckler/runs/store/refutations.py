"""Refutations as one Parquet table: a row an attacked input, with its point, every candidate judged, and its votes."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from buckler.errors import InvalidInput
from buckler.evaluate.refutations import votes_refute
from buckler.files import atomic_write, parse_json
from buckler.laws import named
from buckler.refutations import Bracket, PairTest, Refutation
from buckler.runs.store.certificates import ORIGIN
from buckler.runs.store.tables import likely_rows, open_table

TRIED = pa.struct(
    [
        pa.field("radius", pa.float64()), pa.field("rival", pa.int64()), pa.field("n", pa.int64()),
        pa.field("wins", pa.int64()), pa.field("losses", pa.int64()), pa.field("refuted", pa.bool_()),
    ]
)  # fmt: skip
SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("class", pa.int64(), nullable=False),
        pa.field("radius", pa.float64()),
        pa.field("rival", pa.int64()),
        pa.field("alpha", pa.float64(), nullable=False),
        pa.field("law", pa.string(), nullable=False),
        pa.field("law_parameters", pa.string(), nullable=False),
        pa.field("certified", pa.float64(), nullable=False),
        pa.field("certified_alpha", pa.float64(), nullable=False),
        pa.field("label", pa.int64()),
        pa.field("tried", pa.list_(TRIED), nullable=False),
        pa.field("point", pa.binary()),
        pa.field("shape", pa.list_(pa.int64())),
    ]
)
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
                "law": made.law.name, "law_parameters": json.dumps(dict(made.law.parameters), sort_keys=True),
                "certified": bracket.certified, "certified_alpha": bracket.certified_alpha, "label": bracket.truth,
                "tried": [{name: getattr(test, name) for name in PairTest.__slots__} for test in made.tried],
                "point": None if point is None else point.tobytes(), "shape": None if point is None else point.shape,
            }
        )  # fmt: skip
    schema = SCHEMA.with_metadata({ORIGIN: json.dumps(dict(origin), sort_keys=True)})
    with atomic_write(path) as temporary:
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), temporary, compression="zstd")


def read_refutations(path: Path) -> tuple[list[Bracket], dict[str, Any]]:
    """Return the refutations of a table, each validated again, and what they were made from."""
    try:
        file = open_table(path, rows=likely_rows(path), row_bytes=ROW_BYTES)
        origin = parse_json((file.schema_arrow.metadata or {}).get(ORIGIN, b"{}"))
        table = file.read(columns=SCHEMA.names).select(SCHEMA.names).cast(SCHEMA)
        empty = [field.name for field in SCHEMA if not field.nullable and table[field.name].null_count]
        if empty or not isinstance(origin, dict):
            raise InvalidInput(f"refutations must have a value in every row of {empty[0]!r}" if empty else "no record")
        return [_bracket(row) for row in table.to_pylist()], origin
    except (OSError, ValueError, KeyError, TypeError, AttributeError, pa.ArrowException) as broken:
        raise InvalidInput(f"refutations must be a Parquet table of buckler refute; {path}: {broken}") from None


def _bracket(row: Mapping[str, Any]) -> Bracket:
    point = None if row["point"] is None else np.frombuffer(row["point"], dtype="<f4").reshape(row["shape"])
    tried = tuple(PairTest(**test) for test in row["tried"])
    if not all(votes_refute(test, row["alpha"]) for test in tried):
        raise InvalidInput(f"the votes of {row['id']!r} do not bear out its refutation")
    law = named(row["law"], parse_json(row["law_parameters"]))
    made = Refutation(row["id"], row["class"], row["radius"], row["rival"], point, row["alpha"], law, tried)
    return Bracket(made, row["certified"], row["certified_alpha"], row["label"])
