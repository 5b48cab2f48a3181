"""Decisions as one Parquet table: certificates, for every reader of those; beside them votes, looks, and who drew."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from buckler.certify.decision import Decided
from buckler.errors import InvalidInput, show
from buckler.runs.store.certificates import ROW_BYTES, read_certificates, write_certificates
from buckler.runs.store.tables import likely_rows, open_table, schema
from buckler.types import IntArray

TESTED = "tested"
"""The class that was tested; ``label`` is the true one, as in every table of certificates."""

BESIDE = schema(
    {
        TESTED: "int64", "decision": "string", "votes": pa.map_(pa.int64(), pa.int64()),
        "certified_at": pa.list_(pa.int64()), "by_exam": "int64", "overcome": "binary",
    }
)  # fmt: skip
DRAWN = schema({"input": "string", "drawn_by": "int64"})


class Drawing(NamedTuple):
    """What a decision was drawn from: a hash of its input's values, and its place in the record's ``drawn_by``."""

    input: str
    drawn_by: int


def write_decisions(
    path: Path,
    decisions: Sequence[Decided],
    drawings: Sequence[Drawing],
    origin: Mapping[str, Any],
    labels: IntArray | None = None,
) -> None:
    """Write all decisions to ``path``, whole or not at all; ``origin`` says what they were made from."""
    names = [name for name in BESIDE.names if name != TESTED]
    rows = [
        {TESTED: decided.label, **{name: getattr(decided, name) for name in names}, **drawing._asdict()}
        for decided, drawing in zip(decisions, drawings, strict=True)
    ]
    beside = pa.Table.from_pylist(rows, schema=pa.schema([*BESIDE, *DRAWN]))
    write_certificates(path, [d.certificate for d in decisions], origin, labels, beside)


def read_drawings(path: Path, entries: int) -> list[Drawing]:
    """Return what the decisions of a table were drawn from, by one of so many ``entries``."""
    try:
        table = open_table(path, rows=likely_rows(path), row_bytes=ROW_BYTES).read(columns=DRAWN.names)
        rows = table.select(DRAWN.names).cast(DRAWN).to_pylist()
        found = [Drawing(row["input"], row["drawn_by"]) for row in rows]
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as broken:
        raise InvalidInput(f"{str(path)!r} does not say what it was drawn from: {show(str(broken), 100)}") from None
    if any(d.input is None or d.drawn_by is None or not 0 <= d.drawn_by < entries for d in found):
        raise InvalidInput(f"{str(path)!r} does not say who drew each of its decisions")
    return found


def read_decisions(path: Path) -> list[Decided]:
    """Return the decisions of a table; each row is validated again."""
    certificates = read_certificates(path)
    try:
        table = (
            open_table(path, rows=likely_rows(path), row_bytes=ROW_BYTES)
            .read(columns=BESIDE.names)
            .select(BESIDE.names)
        )
        if any(table[name].null_count for name in BESIDE.names):
            raise InvalidInput(f"decisions must have a value in every row; {path} has not")
        return [
            Decided(
                certificate,
                row[TESTED],
                row["decision"],
                tuple((k, count) for k, count in row["votes"]),
                tuple(row["certified_at"]),
                row["by_exam"],
                row["overcome"],
            )
            for certificate, row in zip(certificates, table.cast(BESIDE).to_pylist(), strict=True)
        ]
    except InvalidInput:
        raise
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as broken:
        raise InvalidInput(f"decisions must be a Parquet table; {path} cannot be read: {broken}") from None
