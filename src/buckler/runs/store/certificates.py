"""Certificates as one Parquet table, a row each, readable by pandas, polars and duckdb."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from buckler.errors import InvalidInput, check_whole_array, show
from buckler.files import parse_json
from buckler.noise import named, settled
from buckler.records import Certificate, Claim
from buckler.runs.store.tables import ORIGIN, likely_rows, open_table, schema, write_table
from buckler.types import IntArray, Law

Row = TypeVar("Row", bound=Claim)

SCHEMA = schema(
    {
        "id": "string", "predicted": "int64?", "radius": "double", "margin_kind": "string",
        "margin": "double", "alpha": "double", "n": "int64", "n0": "int64", "sigma": "double?", "map": "string",
        "temperature": "double?", "method": "string", "sound": "bool",
        "law": "string?", "law_parameters": "string?",
    }
)  # fmt: skip

LATER = frozenset({"law", "law_parameters"})
"""Columns that older tables lack: their noise is Gaussian of standard deviation sigma."""

BATCH = 1 << 16
"""Rows that are Python numbers at a time."""

LABEL = "label"
"""The column of true classes, in a table of certificates whose data had them."""

ROW_BYTES = 32_768
"""Bytes of a row at most, in the mean: a long name, and the votes of a thousand classes."""


def table_of(certificates: Sequence[Claim]) -> pa.Table:
    """Return the certificates as a table, a row each."""
    return pa.Table.from_pylist([c.as_dict() for c in certificates], schema=SCHEMA)


def frame_of(certificates: Sequence[Claim]) -> pa.Table:
    """Return the table for ``Certificates.to_arrow``: texts as classes are allowed, and seeds are a column."""
    seeds, texts = [c.seed for c in certificates], any(isinstance(c.predicted, str) for c in certificates)
    columns = SCHEMA.set(1, pa.field("predicted", pa.string())) if texts else SCHEMA
    table = pa.Table.from_pylist([c.as_dict() for c in certificates], schema=columns)
    return table if set(seeds) <= {None} else table.append_column("seed", pa.array(seeds, pa.int64()))


def write_certificates(
    path: Path,
    certificates: Sequence[Certificate],
    origin: Mapping[str, Any] | None = None,
    labels: IntArray | None = None,
    beside: pa.Table | None = None,
) -> None:
    """Write all certificates to ``path``, whole or not at all; ``origin`` says what they were made from.

    True classes, where known, are one more column; the columns of ``beside``, a row for each certificate, stand beside
    theirs too, and readers of certificates pass them over.
    """
    table = table_of(certificates)
    if labels is not None:
        table = table.append_column(LABEL, pa.array(labels, pa.int64()))
    if beside is not None:
        for column in beside.schema:
            table = table.append_column(column, beside[column.name])
    write_table(path, table, origin)


def read_origin(path: Path) -> dict[str, Any] | None:
    """Return what the certificates of a table were made from, or None if it does not say."""
    try:
        metadata = _open(path).schema_arrow.metadata or {}
        found = parse_json(metadata[ORIGIN]) if ORIGIN in metadata else None
    except ValueError as broken:
        raise InvalidInput(f"certificates must be a Parquet table; {path} cannot be read: {broken}") from None
    return found if isinstance(found, dict) else None


def read_certificates(path: Path) -> list[Certificate]:
    """Return the certificates of a table; each row is validated again, so an unsound one is refused."""
    return read_labelled(path)[0]


def read_labelled(path: Path) -> tuple[list[Certificate], IntArray | None]:
    """Return the certificates of a table, each validated again, and the true classes where it has them."""
    try:
        table = _open(path).read()
        labels = None
        if LABEL in table.column_names:
            labels = check_whole_array(LABEL, table[LABEL].cast(pa.int64()).to_numpy())
        table = with_later(table)
        missing = set(SCHEMA.names) - set(table.column_names)
        if missing:
            raise InvalidInput(f"certificates must have the columns {SCHEMA.names}; {path} lacks {sorted(missing)}")
        table = table.select(SCHEMA.names).cast(SCHEMA)
        return list(each_row(table, path, certificate_of)), labels
    except InvalidInput:
        raise
    except (OSError, ValueError, pa.ArrowException) as broken:
        raise InvalidInput(f"certificates must be a Parquet table; {path} cannot be read: {broken}") from None


def each_row(table: pa.Table, path: Path, read: Callable[[dict[str, Any]], Row]) -> Iterator[Row]:
    """Yield what is read from each row of a table with our columns; a row that contradicts itself is named."""
    number = 0
    for batch in table.to_batches(max_chunksize=BATCH):
        for row in batch.to_pylist():
            name = row["id"]
            try:
                yield read(row)
            except InvalidInput as problem:
                raise type(problem)(f"row {number} of {path} ({show(name)}): {problem}") from None
            number += 1


def certificate_of(row: dict[str, Any]) -> Certificate:
    """Return the certificate of a row, validated again: what follows from its own fields is recomputed."""
    return Certificate(**_with_law(row))


def claim_of(row: dict[str, Any]) -> Claim:
    """Return the certificate of a row, or the claim of one that says that its method is not sound."""
    return certificate_of(row) if row["sound"] else Claim(**_with_law(row))


def with_later(table: pa.Table) -> pa.Table:
    """Return a table with the columns that were not there in older ones, empty."""
    for name in SCHEMA.names:
        if name in LATER and name not in table.column_names:
            table = table.append_column(SCHEMA.field(name), pa.nulls(table.num_rows, SCHEMA.field(name).type))
    return table


def _with_law(row: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a certificate: what an older table does not say is left to its default."""
    sigma, name, parameters = row.pop("sigma"), row.pop("law"), row.pop("law_parameters")
    law = _law(sigma, name, parameters)
    if law.parameters.get("sigma") != sigma:
        raise InvalidInput(f"sigma must be that of the law, {law.describe()}; got {sigma}")
    return {"law": law, **{key: value for key, value in row.items() if key not in LATER or value is not None}}


@lru_cache(maxsize=64)
def _law(sigma: float | None, name: str | None, parameters: str | None) -> Law:
    if name is None:
        return settled(sigma, None)
    try:
        found = parse_json((parameters or "{}").encode())
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise InvalidInput(f"law_parameters must be an object of JSON; got {show(parameters)}")
    return named(name, found)


def _open(path: Path) -> pq.ParquetFile:
    return open_table(path, rows=likely_rows(path), row_bytes=ROW_BYTES)
