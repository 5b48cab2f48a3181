"""``buckler import`` and ``buckler certify --tsv`` as a user types them."""

import json
from pathlib import Path

import pytest

from buckler.cli.app import run
from buckler.runs.logs import read_log

CLAIM = ["--n", "100000", "--sigma", "0.5", "--alpha"]
LOG = Path(__file__).parents[1] / "golden" / "usual_log.tsv"


def test_import_then_certify_then_the_same_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "imported")
    assert run(["import", str(LOG), "--sigma", "0.5"]) == 0
    shown = capsys.readouterr().out
    assert "240 lines, 229 certified, 11 abstentions" in shown
    assert "It fits n 100,000, sigma 0.5, alpha 0.01:" in shown
    assert "import it with its --alpha, --n and --sigma and with --out FOLDER" in shown
    assert run(["import", str(LOG), *CLAIM, "0.01", "--out", out]) == 0
    assert f"buckler certify {out} --alpha 0.01." in capsys.readouterr().out
    again = tmp_path / "again.tsv"
    assert run(["certify", out, "--alpha", "0.01", "--method", "top_class", "--tsv", str(again), "--quiet"]) == 0
    before, after = read_log(LOG), read_log(again)
    assert after.ids == before.ids
    assert (after.predicted == before.predicted).all()
    assert (after.low <= before.high).all()
    assert (after.low >= before.low * (1 - 1e-6) - 2e-6).all()


RIVALS = "tells nothing of the rivals' votes"


def test_a_log_is_imported_first_and_top_class_is_its_method(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("log.tsv").write_bytes(LOG.read_bytes())
    like = ["plan", "--inputs", "3", "--classes", "2", "--rate", "1", "--like"]
    for command in (["certify"], ["report"], ["sweep"], ["accuracy", "--radii", "1"], like):
        assert run([*command, "log.tsv"]) == 2
        told = capsys.readouterr().err
        assert "is a log of radii; import it first, with the alpha, n and sigma" in told
        assert "--sigma SIGMA" in told, "a number here would be copied, and any larger sigma fits a log too"
    assert run(["import", "log.tsv", *CLAIM, "0.01", "--out", "imported"]) == 0
    assert RIVALS in capsys.readouterr().out
    assert run(["certify", "imported", "--alpha", "0.01"]) == 0
    said = capsys.readouterr()
    assert "method top_class" in said.out
    assert RIVALS in said.err
    assert run(["sweep", "imported", "--n", "100000", "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["method"] == "top_class"
    assert RIVALS in said.err
    assert run(["sweep", "imported", "--baseline", "top_class"]) == 2
    assert "--baseline must have another --method to be compared with; got 'top_class' alone" in capsys.readouterr().err
    assert run(["sweep", "imported", "--method", "exact,top_class", "--baseline", "top_class"]) == 0
    capsys.readouterr()
    assert run(["report", "imported", "-o", "page.html"]) == 0
    page = Path("page.html").read_text(encoding="utf-8")
    assert "tells nothing of the rivals" in page
    assert "bonferroni" not in page


def test_every_setting_that_fits_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"{i}\t1\t1\t{radius}\t1\t0" for i, radius in enumerate(("0.25", "0.41", "1.03"))]
    Path("few.tsv").write_text("\n".join(["idx\tlabel\tpredict\tradius\tcorrect\ttime", *rows]))
    for claim, said in (
        (["--sigma", "0.5"], "It fits n 100,000, sigma 0.5, alpha 0.1 or 0.05 or "),
        (["--sigma", "0.5", "--alpha", "0.003"], "It fits n 100,000, sigma 0.5, alpha 0.003:"),
        (["--sigma", "0.5"], "A log of fewer draws than 100,000 fits them as well: give --n to be sure.\n"),
        ([], "Sigma may also be 0.75, 1, 1.5, 2: give it to be sure."),
    ):
        assert run(["import", "few.tsv", *claim]) == 0
        assert said in capsys.readouterr().out
    assert run(["import", str(LOG), "--sigma", "0.5", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == {
        "lines": 240, "certified": 229, "fits": [{"alpha": 0.01, "n": 100_000, "sigma": 0.5}], "out": None,
    }  # fmt: skip


def test_a_log_that_cannot_be_imported_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    header = "idx\tlabel\tpredict\tradius\tcorrect\ttime\n"
    Path("odd.tsv").write_text(header + "0\t1\t1\t99.9\t1\t0\n")
    ours = header.strip() + "\tmethod\tmargin\talpha\tn\tsigma\tnoise\n"
    drawn = "1\t1\t0.1\t1\t0\tanytime\tquantile\t0.001\t{}\t0.5\tgaussian\n"
    Path("decided.tsv").write_text(ours + "".join(f"{i}\t{drawn.format(40 + i)}" for i in range(5)))
    Path("abstentions.tsv").write_text(header + "0\t1\t-1\t0.0\t0\t0\n")
    for arguments, text in (
        (["nowhere.tsv"], "readable text file"),
        (["odd.tsv", "--sigma", "0.5"], "does not fit alpha 0.001, n 100,000, sigma 0.5, nor any other"),
        (["abstentions.tsv"], "abstentions alone"),
        (
            ["decided.tsv"],
            "it says method 'anytime', margin 'quantile', alpha '0.001', n '40 or 41 or 42', sigma '0.5'",
        ),
        ([str(LOG), "--sigma", "0.5", "--out", "imported"], "alpha, n and sigma"),
        ([str(LOG), *CLAIM, "0.001", "--out", "imported"], "does not fit alpha 0.001, n 100,000, sigma 0.5"),
    ):
        assert run(["import", *arguments]) == 2
        error = capsys.readouterr().err
        assert text in error
        assert len(error.strip().splitlines()) == 1
