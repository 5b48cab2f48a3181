"""The page as text: what reaches it is escaped, its policy is tight, its size bounded, its radii rounded down.

``page(example())`` is a small report with every feature on it, and hostile text wherever text can come from outside.
"""

import base64
import hashlib
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import buckler
from buckler.certificate import ANYTIME, ENUMERATED_METHOD, VOTE_METHOD_NAMES, PairTest, Refutation
from buckler.certificates import Certificates
from buckler.cli.app import run
from buckler.evaluate.curves import certified_accuracy, radius_histogram, round_grid
from buckler.report import html
from buckler.report.html import SIDE, Page, RunPage, Series, confidence, contact_sheet, explained, report_page, tiles
from buckler.report.pages import build_page, described, kinds_of, promise
from buckler.runs.logs import import_log
from buckler.runs.results import TopVotes, read_result, top_votes, with_data
from buckler.runs.store.evidence import open_evidence
from buckler.runs.store.tables import read_certificates, read_origin, write_certificates
from buckler.types import IntArray


class Parsed(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self._open = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        del tag
        self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open == "script":
            self.scripts[-1] += data
        elif self._open != "style":
            self.text += data

    @property
    def payload(self) -> Any:
        return json.loads(self.scripts[0])

    @property
    def rows(self) -> Any:
        return json.loads(zlib.decompress(base64.b64decode(self.scripts[1])))

    @property
    def policy(self) -> str:
        return next(str(a["content"]) for t, a in self.tags if a.get("http-equiv") == "Content-Security-Policy")


@cache
def hostile() -> tuple[str, Parsed]:
    text = page(example(), title=ATTACK)
    return text, Parsed(text)


def test_text_from_a_run_is_never_markup() -> None:
    text, parsed = hostile()
    assert [attributes.get("type") for tag, attributes in parsed.tags if tag == "script"] == [
        "application/json",
        "text/plain",
        None,
        None,
    ]
    assert not any(tag == "img" for tag, _ in parsed.tags)
    assert not any(name.startswith("on") for _, attributes in parsed.tags for name in attributes)
    assert "<script>window.broken" not in text
    assert ATTACK in parsed.text
    assert parsed.rows["runs"][0]["ids"][0] == ATTACK
    assert parsed.payload["classes"] == list(CLASSES)
    assert not set("<>&\u2028\u2029") & set(parsed.scripts[0])


def test_policy_lets_nothing_in_but_the_pages_own_scripts() -> None:
    _, parsed = hostile()
    hashes = ["'sha256-" + base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() + "'" for s in parsed.scripts]
    rules = {rule.split()[0]: rule.split()[1:] for rule in parsed.policy.split(";")}
    assert rules["default-src"] == ["'none'"]
    assert rules["script-src"] == hashes[2:]
    assert rules["img-src"] == ["data:"]
    assert "unsafe" not in parsed.policy
    assert "http" not in parsed.policy
    for tag, attributes in parsed.tags:
        assert tag not in {"link", "iframe", "object", "embed", "base"}
        assert "src" not in attributes
        assert str(attributes.get("href", "#")).startswith(("#", "./"))
        assert "style" not in attributes


def test_size_and_what_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    small, parsed = hostile()
    assert len(small.encode()) < html.LARGEST_PAGE
    assert parsed.payload["sheet"] is not None
    base = len(page(example(10), pictures=False).encode())
    monkeypatch.setattr(html, "LARGEST_PAGE", base + 3_000)
    tight = page(example())
    assert len(tight.encode()) < base + 3_000
    found = Parsed(tight)
    rows = len(found.rows["runs"][0]["ids"])
    assert rows < INPUTS
    assert f"first {rows} inputs" in found.text
    assert "Pictures were left out" in found.text
    assert found.payload["series"][0]["inputs"] == INPUTS
    monkeypatch.setattr(html, "LARGEST_PAGE", base // 2)
    with pytest.raises(buckler.InvalidInput, match="does not fit"):
        page(example())


def test_the_table_is_cut_and_curves_are_over_all_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "LARGEST_TABLE", 50)
    found = Parsed(page(example(), pictures=False))
    assert len(found.rows["runs"][0]["ids"]) == len(found.rows["series"]["radius"][0]) == 50
    assert "first 50 inputs of each run" in found.text
    assert found.payload["series"][0]["inputs"] == INPUTS
    assert sum(map(sum, found.payload["series"][0]["bars"])) + found.payload["series"][0]["abstained"] == INPUTS


def test_every_sentence_is_the_certificates_own() -> None:
    made = example()
    rows = hostile()[1].rows
    for sentences, group in zip(rows["series"]["sentence"], made.groups.values(), strict=True):
        assert [f"{c.id}: {text}" for c, text in zip(group, sentences, strict=True)] == [str(c) for c in group]
    assert len(rows["runs"][0]["ids"]) == INPUTS


def test_votes_are_the_largest_ones() -> None:
    votes = hostile()[1].rows["runs"][0]["votes"]
    made = example()
    assert np.array(votes["counts"]).sum(axis=0).tolist() == votes["n"]
    top = np.array([made.votes.classes[:, 0], made.votes.counts[:, 0]])
    assert top.tolist() == [votes["classes"][0], votes["counts"][0]]
    assert (np.diff(votes["counts"], axis=0) <= 0).all()


def test_what_is_shown_is_rounded_down() -> None:
    made = example()
    payload, columns = hostile()[1].payload, hostile()[1].rows["series"]
    for i, (one, group) in enumerate(zip(payload["series"], made.groups.values(), strict=True)):
        assert columns["predicted"][i] == [certificate.predicted for certificate in group]
        for shown, low, certificate in zip(columns["radius"][i], columns["margin"][i], group, strict=True):
            unit = 10.0 ** -len(shown.partition(".")[2])
            assert certificate.radius - unit < float(shown) <= certificate.radius
            assert float(low) <= certificate.margin <= float(low) + 1e-4
        assert len(one["accuracy"]) == len(one["low"]) == len(payload["radii"])
        assert all(float(low) <= float(high) for low, high in zip(one["low"], one["accuracy"], strict=True))


def test_the_histogram_has_right_and_wrong_predictions_apart() -> None:
    made, parsed = example(), hostile()[1]
    kinds = ["predicted right", "predicted wrong", "label unknown"]
    for one, group in zip(parsed.payload["series"], made.groups.values(), strict=True):
        certified = [(c.predicted, label) for c, label in zip(group, made.labels.tolist(), strict=True) if c.radius > 0]
        right = sum(predicted == label for predicted, label in certified)
        assert 0 < len(certified) - right < right
        assert list(map(sum, one["bars"])) == [right, len(certified) - right, 0]
    colours = parsed.payload["charts"]["histogram"]["encoding"]["color"]["scale"]
    assert colours["domain"] == kinds
    assert len(set(colours["range"])) == 3
    assert any(f"KINDS = {json.dumps(kinds)}" in script for script in parsed.scripts)


def test_without_labels_the_page_says_share() -> None:
    parsed = Parsed(page(example(), labelled=False, pictures=False))
    assert "Certified share against radius" in parsed.text
    assert "a certified prediction may be a wrong one" in parsed.text
    assert parsed.rows["runs"][0]["labels"] is None


def test_bytes_that_are_no_text_do_not_stop_the_page() -> None:
    text = page(example(10), pictures=False, title="run-\udcff")
    assert "<h1>run-?</h1>" in text


def test_contact_sheet_holds_each_picture_in_its_place() -> None:
    shades = np.linspace(0.0, 1.0, 7)
    made = tiles([np.full((1, 8, 8), shade) for shade in shades], 0.0, 1.0)
    sheet = contact_sheet(made)
    with Image.open(BytesIO(base64.b64decode(sheet["uri"].partition(",")[2]))) as picture:
        pixels = np.asarray(picture.convert("L"), dtype=float)
    for i, shade in enumerate(shades):
        row, column = divmod(i, sheet["columns"])
        assert pixels[row * SIDE + SIDE // 2, column * SIDE + SIDE // 2] == pytest.approx(255 * shade, abs=6)
    with pytest.raises(buckler.InvalidInput, match="must hold images"):
        tiles([np.zeros(64)], 0.0, 1.0)


def test_sentences() -> None:
    made = example(5)
    groups = list(made.groups.values())
    told = described(groups, "The model m", "shapes")
    assert "sigma 0.5, was certified on 5 inputs of shapes, with 200 draws each" in told
    assert "selected on" in told
    whole = promise(groups, 1e-3)
    assert "open l2 ball" in whole
    assert "at most 0.001" in whole
    assert "at least 0.999, no more than 1 of 5 certificates" in whole
    assert explained("own:mine") == "a bound of the user's own"
    assert not any(
        "own" in explained(name).split() for name in (*VOTE_METHOD_NAMES, ANYTIME, ENUMERATED_METHOD, "pairwise/star")
    )
    assert confidence(0.05) == "0.950"
    first = made.groups["exact"][0]
    loose = buckler.certify_votes([[90, 10]], sigma=0.5, alpha=0.01, labels=[0])[0]
    assert kinds_of([first, loose]) == ["exact, alpha 0.001", "exact, alpha 0.01"]
    assert kinds_of([first]) == ["exact"]


def make_run(folder: Path, name: str, sigma: float = 0.25) -> None:
    (folder / "models_for_report.py").write_text(
        "import numpy as np\n"
        "W = np.random.default_rng(0).normal(size=(64, 10)).astype('f4')\n"
        "def linear():\n"
        "    return lambda batch: batch.reshape(len(batch), -1) @ W\n"
    )
    options = ["--data", "digits", "--limit", "20", "--n", "100", "--n0", "20", "--num-classes", "10", "--quiet"]
    assert run(["sample", name, "--model", "models_for_report:linear", "--sigma", str(sigma), *options]) == 0


def test_command_on_runs_and_certificates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    make_run(tmp_path, "narrow")
    make_run(tmp_path, "wide", 0.5)
    for name in ("narrow", "wide"):
        (tmp_path / "by" / name).mkdir(parents=True)
        (tmp_path / name).rename(tmp_path / "by" / name / "run")
    alike = [str(tmp_path / "by" / name / "run") for name in ("narrow", "wide")]
    assert run(["report", *alike, "-o", "alike.html", "--method", "exact"]) == 0
    seen = Parsed((tmp_path / "alike.html").read_text(encoding="utf-8"))
    for name in ("narrow", "wide"):
        (tmp_path / "by" / name / "run").rename(tmp_path / name)
    assert [one["name"] for one in seen.payload["series"]] == ["narrow", "wide"]
    assert str(tmp_path) not in seen.text.partition("How it was made")[0]
    (tmp_path / "names.txt").write_text("\n".join(f"digit <b>{i}</b>" for i in range(10)))
    choice = ["--method", "exact", "--method", "top_class", "--data", "digits", "--classes", "names.txt"]
    assert run(["report", "narrow", "wide", "-o", "both.html", *choice]) == 0
    both = Parsed((tmp_path / "both.html").read_text(encoding="utf-8"))
    assert [one["name"] for one in both.payload["series"]] == [
        "narrow, exact", "narrow, top_class", "wide, exact", "wide, top_class",
    ]  # fmt: skip
    assert [one["tiles"] for one in both.payload["runs"]] == [0, 20]
    assert both.payload["charts"]["accuracy"]["layer"][0]["encoding"]["x"]["title"] == "certified radius r (l2)"
    ticked = [
        attributes["data-kind"] for _, attributes in both.tags if "data-kind" in attributes and "checked" in attributes
    ]
    assert ticked == ["0"]
    assert "top_class: Clopper-Pearson at alpha for the class," in both.text
    assert "exact: Buehler's limit" in both.text
    headline = both.text.partition("How it was made")[0]
    assert str(tmp_path) not in headline
    assert both.rows["runs"][0]["votes"]["n"] == [100] * 20
    assert "buckler sample wide --spec spec.toml" in both.text
    assert "buckler report narrow wide -o both.html --method exact" in both.text
    assert "answers:" in both.text
    assert "data:" in both.text

    result = read_result(Path("narrow"), ("exact",))
    first = result.groups[0].first
    tests = (PairTest(1.00001, 3, 100, 90, 5, True),)
    point = np.zeros((1, 8, 8), dtype=np.float32)
    beyond = Refutation(first.id, 2, 1.00001, 3, point, 1e-3, first.noise, tests)
    text = build_page([with_data(replace(result, refutations=(beyond,)), "digits")])
    found = Parsed(text)
    assert found.rows["runs"][0]["refuted"][first.id] == {
        "radius": "1.0001", "rival": 3, "sentence": str(beyond).removeprefix(f"{first.id}: "), "tile": 0,
    }  # fmt: skip
    assert found.payload["runs"][0]["points"] == 20

    assert run(["certify", "narrow", "--out", "c.parquet", "--quiet"]) == 0
    assert run(["report", "c.parquet", "-o", "labelled.html"]) == 0
    assert "Certified accuracy" in Parsed((tmp_path / "labelled.html").read_text(encoding="utf-8")).text
    Path("c.parquet").rename("whole.parquet")
    write_certificates(
        tmp_path / "c.parquet", read_certificates(Path("whole.parquet")), read_origin(Path("whole.parquet"))
    )
    assert run(["report", "c.parquet", "-o", "bare.html"]) == 0
    bare = Parsed((tmp_path / "bare.html").read_text(encoding="utf-8"))
    assert "Certified share" in bare.text
    assert "buckler certify run --alpha 0.001 --method exact --margin quantile --n 100 --out c.parquet" in bare.text
    capsys.readouterr()
    assert run(["report", "c.parquet", "-o", "known.html", "--data", "digits", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said == {"page": "known.html", "inputs": 20, "bytes": (tmp_path / "known.html").stat().st_size}
    assert "Certified accuracy" in (tmp_path / "known.html").read_text(encoding="utf-8")

    capsys.readouterr()
    np.save(tmp_path / "other.npy", np.zeros((20, 1, 8, 8), dtype=np.float32))
    write_certificates(tmp_path / "none.parquet", [])
    for arguments, complaint in [
        (["nowhere"], "RUN must be a folder"),
        (["narrow", "narrow"], "runs must be different paths"),
        (["narrow", "--data", "other.npy"], "data is not that of"),
        (["whole.parquet", "--data", "other.npy"], "data is not that of"),
        (["c.parquet", "--alpha", "0.1"], "already made"),
        (["c.parquet", "--method", "top_class"], "holds no certificate"),
        (["none.parquet"], "certificates must be a Parquet table"),
        (["narrow", "--method", "best"], "method"),
        (["narrow", "--classes", "nowhere.txt"], "--classes"),
        (["narrow", "--out", "narrow"], "is a folder"),
        (["narrow", "--delta", "2"], "delta must be"),
    ]:
        assert run(["report", *arguments]) == 2, arguments
        told = capsys.readouterr().err
        assert complaint in told
        assert len(told.splitlines()) == 1


def test_the_band_is_that_of_the_delta_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path, "run")
    result = read_result(tmp_path / "run")
    pages = [Parsed(build_page([result], delta=delta)) for delta in (0.5, 1e-6)]
    wide, narrow = (float(parsed.payload["series"][0]["low"][0]) for parsed in pages)
    assert wide > narrow


def test_limits_for_the_population_are_beside_the_curve() -> None:
    """Those of ``population_accuracy`` from the draws asked for, at radii that the noise alone decides."""
    run_folder = Path(__file__).parents[2] / "evidence" / "cifar10-sigma0.50"
    result = read_result(run_folder, ("top_class",), n=100)
    parsed = Parsed(build_page([result], delta=0.01))
    votes = open_evidence(run_folder).counts(100)
    assert votes.labels is not None
    radii = [0.0, 0.25, 0.5, 0.75]
    found = buckler.population_accuracy(votes.values, votes.labels, [*radii, 1.0, 1.5], sigma=0.5, delta=0.01)
    assert [point["radius"] for point in parsed.payload["population"]] == radii
    for point, low in zip(parsed.payload["population"], found.low, strict=False):
        assert point["series"] == "s0"
        assert low - 1e-3 < point["accuracy"] <= low
    assert found.low[0] > 0.5
    assert str(found) in parsed.text
    without = Parsed(build_page([replace(result, true_votes=None)]))
    assert without.payload["population"] == []
    assert "of the population" not in without.text


def test_votes_recovered_from_a_log_give_no_limit_for_the_population(tmp_path: Path) -> None:
    """They are lower limits of the votes, and the polynomial does not rise with them."""
    lines = ["idx\tlabel\tpredict\tradius\tcorrect\ttime"] + [f"{i}\t0\t0\t0.532\t1\t0" for i in range(60)]
    (tmp_path / "log.tsv").write_text("\n".join(lines))
    import_log(tmp_path / "log.tsv", alpha=0.001, n=1000, sigma=0.5, out=tmp_path / "imported")
    assert read_result(tmp_path / "imported", ("top_class",)).true_votes is None


ATTACK = "<script>window.broken=1</script><img src=x onerror=window.broken=1>'\"&\u2028</title></style>"
FORMULA = '=HYPERLINK("http://example.invalid","x")'
METHODS = ("exact", "bonferroni")
INPUTS = 120
CLASSES = ("cat", ATTACK, "dog")


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    ids: tuple[str, ...]
    labels: IntArray
    groups: dict[str, Certificates]
    votes: TopVotes


def example(inputs: int = INPUTS, seed: int = 0, methods: Sequence[str] = METHODS) -> Example:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, inputs)
    chances = rng.dirichlet([0.4, 0.2, 0.2], inputs)
    chances.sort(axis=1)
    votes = np.stack([rng.multinomial(200, row) for row in chances[:, ::-1]])
    shift = np.where(rng.random(inputs) < 0.9, labels, (labels + 1) % 3)
    votes = np.stack([np.roll(row, k) for row, k in zip(votes, shift, strict=True)])
    ids = (ATTACK, FORMULA, *(f"image {i}" for i in range(2, inputs)))
    groups: dict[str, Certificates] = {}
    for method in methods:
        made = buckler.certify_votes(votes, sigma=0.5, selection=votes // 2 + 1, method=method, ids=ids)
        groups[method] = made
    return Example(ids, labels, groups, top_votes([votes]))


def page(made: Example, *, labelled: bool = True, pictures: bool = True, title: str = "Example") -> str:
    radii, edges = round_grid(1.3, 100), round_grid(1.3, 20)
    truth = made.labels if labelled else None
    series = [
        Series(
            name,
            name,
            0,
            group,
            certified_accuracy(group, truth, radii, name=name),
            radius_histogram(group, truth, edges),
        )
        for name, group in made.groups.items()
    ]
    images = np.random.default_rng(1).random((len(made.ids), 3, 32, 32))
    noise = next(iter(made.groups.values())).first.noise
    beyond = Refutation("image 2", 0, 0.70005, 1, images[0], 1e-3, noise, (PairTest(0.70005, 1, 100, 90, 5, True),))
    run = RunPage(
        name=f"run {ATTACK}",
        sentence=described(list(made.groups.values()), f"The model {ATTACK}", "shapes"),
        ids=made.ids,
        labels=truth,
        facts={"Sampling": {"model": ATTACK, "sigma": "0.5"}},
        spec_toml=f'model = "{ATTACK}"',
        commands=[f"buckler report '{ATTACK}'"],
        tiles=tiles(images, 0.0, 1.0) if pictures else (),
        votes=made.votes,
        refutations=[beyond],
        points=tiles(images[:1], 0.0, 1.0) if pictures else (),
    )
    said = promise(list(made.groups.values()), 1e-3)
    return report_page(Page([run], series, title, said, CLASSES))
