"""Certificates, decisions, refutations and sweeps as Parquet tables, readable by pandas, polars and duckdb.

Every row is validated again when it is read, whoever wrote it.
"""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import expm1, inf, log
from pathlib import Path
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.csv import write_csv

from buckler.certificate import ABSTAINED, LEAST_UNIFORM, RANDOMISED, Bracket, Certificate, Claim, PairTest, Refutation
from buckler.certificates import Certificates
from buckler.certify.sequential import Decided
from buckler.errors import InvalidInput, check_whole_array, show
from buckler.evaluate.refutations import votes_refute
from buckler.files import atomic_write, parse_json
from buckler.noise import named
from buckler.runs.identity import records_in
from buckler.runs.store.parquet import likely_rows, open_table, read_table, read_table_origin, schema, write_table
from buckler.types import IntArray, Noise

SCHEMA = schema(
    {
        "id": "string", "predicted": "int64?", "radius": "double", "margin_kind": "string",
        "margin": "double", "alpha": "double", "n": "int64", "n0": "int64", "sigma": "double?", "map": "string",
        "temperature": "double?", "method": "string", "sound": "bool", "winner_alpha": "double",
        "score_dtype": "string", "noise": "string", "noise_parameters": "string", "seed": "int64?",
    }
)  # fmt: skip

VARYING = frozenset({"id", "predicted", "radius", "margin", "n", "n0"})
"""Columns that may differ among the certificates of one method and its settings."""

LABEL = "label"
"""Name of the column of true classes, in a table of certificates whose data had them."""

INPUT = "input"
"""Name of the column of hashes of the inputs' values, in a table of certificates of inputs that are known."""

TABLE_ROW_BYTES = 32_768
"""Bytes of a row at most, in the mean: a long name, and the votes of a thousand classes."""

MARGIN_EXCESS = 1e-9
"""How far, relatively, a margin may be above the largest one: the quantile of the normal distribution is rounded."""


def table_of(certificates: Sequence[Claim]) -> pa.Table:
    """Return the certificates as a table, a row each; those behind a router are refused: readers would miss it."""
    if any(c.router is not None for c in certificates):
        raise InvalidInput("certificates behind a router must be written to a file that ends in .csv")
    if any(isinstance(c.predicted, str) for c in certificates):
        raise InvalidInput("certificates whose classes are texts must be written to a file that ends in .csv")
    return pa.Table.from_pylist([c.as_dict() for c in certificates], schema=SCHEMA)


def frame_of(certificates: Sequence[Claim]) -> pa.Table:
    """Return the table for ``Certificates.to_arrow``: classes may be texts, and routers get a column."""
    texts = any(isinstance(c.predicted, str) for c in certificates)
    columns = SCHEMA.set(1, pa.field("predicted", pa.string())) if texts else SCHEMA
    table = pa.Table.from_pylist([c.as_dict() for c in certificates], schema=columns)
    routers = [None if c.router is None else json.dumps(c.router.as_dict()) for c in certificates]
    return table if set(routers) <= {None} else table.append_column("router", pa.array(routers, pa.string()))


def write_certificates(
    path: Path,
    certificates: Sequence[Certificate],
    origin: Mapping[str, Any] | None = None,
    labels: IntArray | None = None,
    contents: Sequence[str] | None = None,
    beside: pa.Table | None = None,
) -> None:
    """Write all certificates to ``path``, Parquet or CSV by its ending, whole or not at all.

    ``origin`` says what they were made from; CSV does not hold it. ``labels`` and ``contents`` are columns
    too: true classes, and hashes of the inputs' values. ``beside`` holds further ones, a row for each certificate.
    """
    check_ending(path)
    table = frame_of(certificates) if path.suffix == ".csv" else table_of(certificates)
    if labels is not None:
        table = table.append_column(LABEL, pa.array(labels, pa.int64()))
    if contents is not None:
        table = table.append_column(INPUT, pa.array(contents, pa.string()))
    if beside is not None:
        for column in beside.schema:
            table = table.append_column(column, beside[column.name])
    if path.suffix == ".csv":
        with atomic_write(path) as temporary:
            write_csv(table, temporary)
    else:
        write_table(path, table, origin or {})


def check_ending(path: Path, endings: Sequence[str] = (".parquet", ".csv"), name: str = "path") -> None:
    """Raise InvalidInput for a file of certificates whose name has another ending."""
    if path.suffix not in endings:
        raise InvalidInput(f"{name} must be a file that ends in {' or '.join(endings)}; got {str(path)!r}")


def refuse_drawn(path: Path, name: str = "path") -> None:
    """Raise InvalidInput if the file at ``path`` holds decisions or refutations: their draws would be lost under it."""
    try:
        columns = set(open_table(path, rows=likely_rows(path), row_bytes=TABLE_ROW_BYTES).schema_arrow.names)
    except ValueError:  # nothing is there, or no table of ours
        return
    for command, its in (("decide", BESIDE), ("refute", REFUTATION_COLUMNS)):
        if columns >= set(its.names):
            raise InvalidInput(f"{name} must be another file; {str(path)!r} keeps what buckler {command} drew")


def read_origin(path: Path) -> dict[str, Any]:
    """Return what the certificates of a table were made from; the rows are not read."""
    try:
        return read_table_origin(path, row_bytes=TABLE_ROW_BYTES)
    except ValueError as broken:
        raise _not_ours(path, broken) from None


def read_certificates(path: str | Path) -> Certificates:
    """Return the certificates of a table, each validated again, with their true classes where it has them."""
    path = Path(path)
    return certificates_in(read_rows(path)[0], path)


def read_rows(path: Path) -> tuple[pa.Table, dict[str, Any]]:
    """Return a table with the columns of certificates, after comparing its rows with their digest, and its origin."""
    try:
        table, origin = read_table(path, row_bytes=TABLE_ROW_BYTES)
    except ValueError as broken:
        raise _not_ours(path, broken) from None
    missing = set(SCHEMA.names) - set(table.column_names)
    if missing:
        raise InvalidInput(f"certificates must have the columns {SCHEMA.names}; {path} lacks {sorted(missing)}")
    return table, origin


def certificates_in(table: pa.Table, path: Path) -> Certificates:
    """Return the certificates of a table that was read from ``path``, a kind for each way in which they were made.

    Every row is validated as a ``Certificate``, rows that differ in their id alone once.
    """
    try:
        labels = table[LABEL].cast(pa.int64()).to_numpy() if LABEL in table.column_names else None
        labels = None if labels is None else check_whole_array(LABEL, labels)
        table = table.select(SCHEMA.names).cast(SCHEMA)
        ways = np.zeros(table.num_rows, dtype=np.int64)
        for name in sorted(set(SCHEMA.names) - VARYING):
            codes = pc.dictionary_encode(table[name], null_encoding="encode").combine_chunks().indices.to_numpy()
            ways = np.unique(ways * (int(codes.max()) + 1) + codes, return_inverse=True)[1]
        # Classes that were given and classes that were selected are two ways, whatever the number of selection draws.
        ways = 2 * ways + (table["n0"].to_numpy() == 0)
        starts, kind = np.unique(ways, return_index=True, return_inverse=True)[1:]
        kind = np.argsort(np.argsort(starts))[kind]  # kinds in the order of their first rows
        kinds = [_first_of_kind(table, np.flatnonzero(kind == k), path) for k in range(len(starts))]
    except InvalidInput:
        raise
    except (ValueError, pa.ArrowException) as broken:
        raise _not_ours(path, broken) from None
    predicted = pc.fill_null(table["predicted"], ABSTAINED).to_numpy()
    radii, margins, n, n0 = (table[name].to_numpy() for name in ("radius", "margin", "n", "n0"))
    ids, of_kind = table["id"].to_pylist(), kind if len(kinds) > 1 else None
    return Certificates(tuple(kinds), ids, predicted, radii, margins, n, n0, of_kind, labels)


def contents_in(table: pa.Table, ids: Sequence[str], path: Path) -> tuple[str, ...] | None:
    """Return the hashes of the values of inputs with these ids, None if a table of certificates does not hold them."""
    if INPUT not in table.column_names:
        return None
    known = dict(zip(table["id"].to_pylist(), table[INPUT].to_pylist(), strict=True))
    if not all(isinstance(known[name], str) for name in ids):
        raise InvalidInput(f"{INPUT} must be a text in every row of {str(path)!r}")
    return tuple(known[name] for name in ids)


def _first_of_kind(table: pa.Table, rows: IntArray, path: Path) -> Certificate:
    """Return the first of some certificates that share all but the columns ``VARYING``, after validating each."""
    part = table if len(rows) == table.num_rows else table.take(rows)
    names = ("radius", "margin", "n", "n0")
    predicted, missing = pc.fill_null(part["predicted"], ABSTAINED).to_numpy(), pc.is_null(part["predicted"]).to_numpy()
    keys = list(zip(missing.tolist(), *(part[name].to_numpy().tolist() for name in names), strict=True))
    settings, made = part.slice(0, 1).to_pylist()[0], list[Certificate]()
    negative = np.flatnonzero((predicted < 0) & ~missing)[:1].tolist()
    for i in sorted({*{key: i for i, key in reversed([*enumerate(keys)])}.values(), *negative}):
        chosen = dict(zip(names, keys[i][1:], strict=True))
        name, label = part["id"][i].as_py(), None if missing[i] else int(predicted[i])
        try:
            made.append(certificate_of({**settings, **chosen, "id": name, "predicted": label}))
        except InvalidInput as problem:
            raise type(problem)(f"row {rows[i]} of {path} ({show(name)}): {problem}") from None
    return made[0]


def _not_ours(path: Path, problem: Exception) -> InvalidInput:
    return InvalidInput(f"certificates must be a Parquet table written by buckler; {str(path)!r}: {problem}")


def certificate_of(row: dict[str, Any]) -> Certificate:
    """Return the certificate of a row; fields that contradict one another or a margin that cannot be are refused."""
    noise, sigma = _noise(row.pop("noise"), row.pop("noise_parameters")), row.pop("sigma")
    if noise.parameters.get("sigma") != sigma:
        raise InvalidInput(f"sigma must be that of the noise, {noise.describe()}; got {sigma}")
    made = Certificate(noise=noise, **row)
    most = largest_margin(made.margin_kind, made.alpha, made.n, made.method == RANDOMISED)
    if made.margin > most:
        raise InvalidInput(
            f"margin must be at most {most:.6g}, that of {made.n:,} unanimous votes at alpha {made.alpha:g}; got "
            f"{made.margin:g}"
        )
    return made


@lru_cache(maxsize=1024)
def largest_margin(kind: str, level: float, n: int, randomised: bool = False) -> float:
    """Return the largest margin that n draws can certify at a level, rounded up: that of n unanimous votes.

    A probability p gives n unanimous votes with probability p^n, so a lower limit that is too high with probability at
    most the level cannot exceed level^(1/n), nor the rival's upper limit be below 1 - level^(1/n). Scores in [0, 1]
    may be votes, so the same holds for them. A randomised method needs ``LEAST_UNIFORM`` of the wealth that others need
    (T15a), so its limits are at most theirs at a level that is larger by as much. The level is 0 for enumerated copies.

    >>> round(largest_margin("probability", 0.001, 100), 4), round(largest_margin("quantile", 0.001, 100), 4)
    (0.8665, 3.001)
    """
    if randomised:
        level /= LEAST_UNIFORM
    if not 0.0 < level < 1.0:
        return inf
    rest = -expm1(log(level) / n)  # 1 - level^(1/n)
    most = 1.0 - 2.0 * rest if kind == "probability" else -2.0 * NormalDist().inv_cdf(rest)
    return most + MARGIN_EXCESS * abs(most)


@lru_cache(maxsize=64)
def _noise(name: str, parameters: str) -> Noise:
    try:
        found = parse_json(parameters)
    except (TypeError, ValueError):
        found = None
    if not isinstance(found, dict):
        raise InvalidInput(f"noise_parameters must be an object of JSON; got {show(parameters)}")
    return named(name, found)


TESTED = "tested"
"""Name of the column of the class that was tested; the column ``label`` has the true one, as in every table of
certificates."""

BESIDE = schema(
    {
        TESTED: "int64", "decision": "string", "votes": pa.map_(pa.int64(), pa.int64()),
        "certified_at": pa.list_(pa.int64()), "by_final_test": "int64", "overcome": "binary", "bets": "binary",
        INPUT: "string", "drawn_by": "int64",
    }
)  # fmt: skip


class Drawing(NamedTuple):
    """The hash of a decided input's values, and the position of the model in the origin's ``drawn_by``."""

    input: str
    drawn_by: int


class DecisionTable(NamedTuple):
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
    write_certificates(path, [d.certificate for d in decisions], origin, labels, beside=beside)


def read_decisions(path: Path) -> DecisionTable:
    """Return the decisions of a table, each validated again, what they were drawn from, and the table's origin."""
    table, origin = read_rows(path)
    if "drawn_by" not in origin:
        raise InvalidInput(f"{str(path)!r} must be a file of buckler decide; it holds certificates without decisions")
    certificates = certificates_in(table, path)
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
                raise ValueError(
                    f"the column drawn_by must be below {models}, the number of models; got {row['drawn_by']}"
                )
            drawings.append(Drawing(row["input"], row["drawn_by"]))
    except InvalidInput:
        raise
    except (ValueError, KeyError, TypeError, pa.ArrowException) as broken:
        problem = show(str(broken), 100)
        raise InvalidInput(f"decisions must be a table of buckler decide; {str(path)!r}: {problem}") from None
    return DecisionTable(decided, drawings, origin)


TRIED = pa.struct(
    [
        ("radius", pa.float64()), ("rival", pa.int64()), ("n", pa.int64()), ("wins", pa.int64()),
        ("losses", pa.int64()), ("refuted", pa.bool_()),
    ]
)  # fmt: skip
REFUTATION_COLUMNS = schema(
    {
        "id": "string", "class": "int64", "radius": "double?", "rival": "int64?", "alpha": "double", "noise": "string",
        "noise_parameters": "string", "certified": "double", "certified_alpha": "double", "label": "int64?",
        "tried": pa.list_(TRIED), "point": "binary?",
    }
).append(pa.field("shape", pa.list_(pa.int64())))  # fmt: skip
REFUTATION_BYTES = 1 << 22
"""Bytes of a row at most, in the mean: a point of a million values."""


def write_refutations(path: Path, brackets: Sequence[Bracket], origin: Mapping[str, Any]) -> None:
    """Write all refutations to ``path``, whole or not at all; ``origin`` says what they were made from."""
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
    write_table(path, pa.Table.from_pylist(rows, schema=REFUTATION_COLUMNS), origin)


def read_refutations(path: Path) -> tuple[list[Bracket], dict[str, Any]]:
    """Return the refutations of a table, each validated again, and what they were made from."""
    try:
        table, origin = read_table(path, row_bytes=REFUTATION_BYTES)
        table = table.select(REFUTATION_COLUMNS.names).cast(REFUTATION_COLUMNS)
        return [_bracket(row) for row in table.to_pylist()], origin
    except (ValueError, KeyError, TypeError, AttributeError, pa.ArrowException) as broken:
        raise InvalidInput(f"refutations must be a table of buckler refute; {str(path)!r}: {broken}") from None


def _bracket(row: Mapping[str, Any]) -> Bracket:
    point = None if row["point"] is None else np.frombuffer(row["point"], dtype="<f4").reshape(row["shape"])
    tried = tuple(PairTest(**test) for test in row["tried"])
    if not all(votes_refute(test, row["alpha"]) for test in tried):
        raise InvalidInput(
            f"{row['id']!r} is marked as refuted, and its votes are too few for that at alpha {row['alpha']:g}"
        )
    noise = named(row["noise"], parse_json(row["noise_parameters"]))
    made = Refutation(row["id"], row["class"], row["radius"], row["rival"], point, row["alpha"], noise, tried)
    return Bracket(made, row["certified"], row["certified_alpha"], row["label"])


SWEEP_COLUMNS = pa.schema([*schema({"folder": "string", "class": "string", "label": "int64?"}), *SCHEMA])


def write_sweep(
    path: Path, cells: Sequence[Certificates], origins: Sequence[tuple[str, str]], settings: Mapping[str, Any]
) -> None:
    """Write the certificates of all cells to ``path``, whole or not at all, with the settings of the sweep.

    ``origins`` are the folder of the evidence and the class that was certified, for each cell.
    """
    parts = []
    for made, (folder, certified_class) in zip(cells, origins, strict=True):
        labels = [None] * len(made) if made.labels is None else made.labels.tolist()
        beside = {"folder": folder, "class": certified_class}
        rows = [{**beside, "label": label, **c.as_dict()} for c, label in zip(made, labels, strict=True)]
        parts.append(pa.Table.from_pylist(rows, schema=SWEEP_COLUMNS))
    write_table(path, pa.concat_tables(parts), settings)
