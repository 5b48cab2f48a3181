"""Decisions as one Parquet table: columns of certificates, and beside them votes, steps, and who drew."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from buckler.certify.sequential import Decided
from buckler.errors import InvalidInput, show
from buckler.runs.identity import records_in
from buckler.runs.store.certificates import certificates_in, read_rows, write_certificates
from buckler.runs.store.tables import schema
from buckler.types import IntArray

TESTED = "tested"
"""The class that was tested; ``label`` is the true one, as in every table of certificates."""

BESIDE = schema(
    {
        TESTED: "int64", "decision": "string", "votes": pa.map_(pa.int64(), pa.int64()),
        "certified_at": pa.list_(pa.int64()), "by_final_test": "int64", "overcome": "binary", "bets": "binary",
        "input": "string", "drawn_by": "int64",
    }
)  # fmt: skip


class Drawing(NamedTuple):
    """The hash of a decided input's values, and the position of the model in the origin's ``drawn_by``."""

    input: str
    drawn_by: int


class Decisions(NamedTuple):
    """Decisions of a file, what each was drawn from, and what was asked."""

    decided: list[Decided]
    drawings: list[Drawing]
    origin: dict[str, Any]


def write_decisions(
    path: Path,
    decisions: Sequence[Decided],
    drawings: Sequence[Drawing],
    origin: Mapping[str, Any],
    labels: IntArray | None = None,
) -> None:
    """Write all decisions to ``path``, whole or not at all; ``origin`` says what they were made from."""
    names = [name for name in BESIDE.names if name not in {TESTED, *Drawing._fields}]
    rows = [
        {TESTED: decided.label, **{name: getattr(decided, name) for name in names}, **drawing._asdict()}
        for decided, drawing in zip(decisions, drawings, strict=True)
    ]
    beside = pa.Table.from_pylist(rows, schema=BESIDE)
    write_certificates(path, [d.certificate for d in decisions], origin, labels, beside)


def read_decisions(path: Path) -> Decisions:
    """Return the decisions of a table, each validated again, what they were drawn from, and the table's origin."""
    table, origin = read_rows(path)
    certificates, _ = certificates_in(table, path)
    models = len(records_in(origin))
    try:
        beside = table.select(BESIDE.names).cast(BESIDE)
        if any(beside[name].null_count for name in BESIDE.names):
            raise ValueError("a value is missing")
        decided, drawings = [], []
        for certificate, row in zip(certificates, beside.to_pylist(), strict=True):
            votes, steps = tuple((k, count) for k, count in row["votes"]), tuple(row["certified_at"])
            state = {"overcome": row["overcome"], "bets": row["bets"]}
            decided.append(
                Decided(certificate, row[TESTED], row["decision"], votes, steps, row["by_final_test"], **state)
            )
            if not 0 <= row["drawn_by"] < models:
                raise ValueError(f"drawn_by must be below {models}; got {row['drawn_by']}")
            drawings.append(Drawing(row["input"], row["drawn_by"]))
    except InvalidInput:
        raise
    except (ValueError, KeyError, TypeError, pa.ArrowException) as broken:
        problem = show(str(broken), 100)
        raise InvalidInput(f"decisions must be a table of buckler decide; {str(path)!r}: {problem}") from None
    return Decisions(decided, drawings, origin)
