"""What a report and a sweep show, made by a program: without the command line, reading each file of evidence once."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from buckler.certificates import Certificates
from buckler.certify.votes import certify_votes
from buckler.errors import InvalidInput
from buckler.runs.certify import certify_by_each, certify_evidence
from buckler.runs.results import read_result
from buckler.runs.store.evidence import open_evidence
from buckler.runs.store.parquet import write_table
from buckler.runs.store.tables import SCHEMA, read_certificates, read_rows, write_certificates
from tests.runs.victim import run as sample
from tests.runs.victim import spec

PROGRAM = """
import sys
from pathlib import Path
from buckler.report.pages import build_page
from buckler.report.sweeps import draw_axes, sweep_table
from buckler.runs.sweep import Grid
from buckler.runs.results import read_result
from buckler.runs.sweep import sweep_runs
run = sys.argv[1]
page = build_page([read_result(Path(run), ("top_class", "bonferroni"))])
assert "<html" in page and "bonferroni" in page
cells = sweep_runs([run], Grid(method=("top_class", "bonferroni"), n=(50, 100)), Path("sweep.parquet"))
print(sweep_table(cells, baseline="bonferroni").to_markdown())
drawn = [path.name for path in draw_axes(cells, Path())]
assert drawn == [f"accuracy_by_{axis}.{kind}" for axis in ("n", "method") for kind in ("png", "pdf")]
assert not [name for name in sys.modules if name.startswith("buckler.cli")]
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("runs") / "run"
    sample(str(made), spec=spec(scores="logits", runner_ups=None, limit=6, n=100, n0=20, shard_inputs=2))
    return made


def test_a_program_makes_the_page_and_the_table(run: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(run)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)  # noqa: S603
    assert done.returncode == 0, done.stderr
    assert "gain over bonferroni" in done.stdout


def test_several_methods_at_once_give_what_each_gives_alone(run: Path) -> None:
    evidence = open_evidence(run)
    methods = ["top_class", "pairwise/hoeffding", "exact"]
    for chosen in ("label", "selection"):
        made = certify_by_each(evidence, methods, n=50, certified_class=chosen, alpha=0.01)
        for method, group in zip(methods, made.certificates, strict=True):
            alone = certify_evidence(evidence, method=method, n=50, certified_class=chosen, alpha=0.01)
            assert alone == group
            assert group.labels is not None
            np.testing.assert_array_equal(alone.labels, group.labels)
    assert len(made.contents) == 6
    with pytest.raises(TypeError, match="'alhpa'"):
        certify_evidence(evidence, alhpa=0.1)  # type: ignore[call-arg]


def test_labels_travel_with_certificates(run: Path, tmp_path: Path) -> None:
    made = certify_evidence(open_evidence(run), method="top_class")
    labels = made.labels
    write_certificates(tmp_path / "c.parquet", made, labels=labels)
    again = read_certificates(tmp_path / "c.parquet")
    assert again == made
    known = again.labels
    assert known is not None
    assert labels is not None
    assert (known == labels).all()
    found = read_result(tmp_path / "c.parquet").labels
    assert found is not None
    assert (found == labels).all()
    write_certificates(tmp_path / "bare.parquet", made)
    assert read_certificates(tmp_path / "bare.parquet").labels is None


def test_labels_are_one_for_each_certificate() -> None:
    made = certify_votes([[90, 10], [80, 20]], sigma=0.5, labels=[0, 0], ids=["a", "b"])
    with pytest.raises(InvalidInput, match="one for each of 2"):
        Certificates.of(made, labels=np.array([1]))


def many(path: Path, inputs: int, distinct: int) -> None:
    """Write certificates of many inputs, with so many different margins, without making a record of each."""
    first = certify_votes([[990, 10]], sigma=0.5, labels=[0])[0]
    margins = np.linspace(-1.0, 3.5, distinct)[np.arange(inputs) % distinct]
    radii = np.array([first.noise.radius(margin, "quantile") for margin in margins[:distinct].tolist()])
    radii = radii[np.arange(inputs) % distinct]
    columns = {name: pa.array([value]).take(pa.array(np.zeros(inputs, int))) for name, value in first.as_dict().items()}
    columns |= {"id": pa.array([f"image {i}" for i in range(inputs)]), "margin": margins, "radius": radii}
    columns["predicted"] = pa.array(np.arange(inputs) % 10, mask=radii == 0.0)
    arrays = {name: pa.array(columns[name]).cast(SCHEMA.field(name).type) for name in SCHEMA.names}
    table = pa.table(arrays, schema=SCHEMA).append_column("label", pa.array(np.arange(inputs) % 9))
    write_table(path, table, {})


def test_a_row_that_contradicts_itself_is_named(tmp_path: Path) -> None:
    many(tmp_path / "many.parquet", 100, 10)
    table, _ = read_rows(tmp_path / "many.parquet")
    for name, at, wrong in (("radius", 57, 9.0), ("predicted", 58, -2), ("n", 59, 0), ("margin", 7, 3.0)):
        values = table[name].to_pylist()
        values[at] = wrong
        place = table.column_names.index(name)
        write_table(tmp_path / "bad.parquet", table.set_column(place, table.schema.field(place), [values]), {})
        with pytest.raises(InvalidInput, match=rf"row {at} of .*image {at}.*{name}|row {at} of .*image {at}.*radius"):
            read_result(tmp_path / "bad.parquet")
