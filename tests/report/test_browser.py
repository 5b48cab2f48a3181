"""The page in a real Chromium, opened from disk: every control works, nothing is asked of any network."""

import csv
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from buckler.cli.app import run
from buckler.runs.sample import sample
from buckler.sampling.classifiers import as_classifier
from buckler.sampling.datasets import from_arrays
from tests.report.test_board import write_card
from tests.report.test_html import ATTACK, FORMULA, INPUTS, METHODS, example, page
from tests.runs.victim import linear, spec

pytestmark = pytest.mark.browser

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

REQUIRED = os.environ.get("BUCKLER_REQUIRE_BROWSER") == "1"
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]

CONTRAST = """() => {
  const light = (colour) => {
    const [r, g, b] = colour.match(/[\\d.]+/g).map((v) => v / 255)
      .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paper = light(getComputedStyle(document.body).backgroundColor);
  const names = ["body", ".note", "#rows thead button", "#kinds span", ".result.wrong", ".result.abstained", "dt"];
  return [...names, "#accuracy-chart text"]
    .map((name) => {
      const node = document.querySelector(name), style = getComputedStyle(node);
      const ink = light(node.tagName === "text" ? style.fill : style.color);
      return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
    });
}"""
"""Ratios of luminance between text and page, by the formula of the accessibility guidelines."""


def missing(reason: str) -> None:
    if REQUIRED:
        pytest.fail(f"BUCKLER_REQUIRE_BROWSER=1, but {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("playwright is not installed")
        raise
    if program is None:
        missing("no Chromium is installed (apt-get install --no-install-recommends chromium)")
    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=program, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(page(example(), title=ATTACK), encoding="utf-8", newline="\n")
    return path


@dataclass
class Visit:
    """An opened page, and all that it complained about or asked for."""

    page: Any
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def column(self, number: int) -> list[str]:
        found = self.page.locator("#rows tbody tr[data-row]").evaluate_all(
            "(rows, number) => rows.map((row) => row.children[number].textContent)", number
        )
        assert found, "the table is empty"
        return [str(text) for text in found]

    def chart(self) -> str:
        return str(self.page.locator("#accuracy-chart svg").inner_html())


def visit(browser: "Browser", file: Path, *, table: str = "", **options: Any) -> Visit:
    context = browser.new_context(viewport={"width": 1280, "height": 900}, **options)
    context.set_default_timeout(10_000)
    opened: Page = context.new_page()
    made = Visit(opened)
    opened.on("console", lambda message: made.complaints.append(message.text))
    opened.on("pageerror", lambda error: made.complaints.append(str(error)))
    opened.on("request", lambda request: made.requests.append(request.url))
    opened.goto(file.as_uri())
    if table:
        opened.wait_for_selector(f"{table} tbody tr")
        opened.wait_for_selector("#chart-0 svg")
        return made
    opened.wait_for_selector("#accuracy-chart svg")
    opened.wait_for_selector("#histogram-chart svg")
    opened.wait_for_selector("#rows tbody tr")
    return made


@pytest.fixture
def seen(browser: "Browser", file: Path) -> Iterator[Visit]:
    made = visit(browser, file)
    yield made
    assert made.complaints == []
    outside = [url for url in made.requests if not url.startswith(("data:", "blob:"))]
    assert outside == [file.as_uri()]
    assert made.page.evaluate("window.broken") is None
    made.page.context.close()


ID, LABEL, PREDICTED, RADIUS, OUTCOME = 1, 2, 3, 4, 5


def test_hostile_text_is_inert_and_shown_as_it_is(seen: Visit) -> None:
    assert seen.column(ID)[0] == ATTACK
    assert any(ATTACK in name for name in seen.column(LABEL))
    assert ATTACK in seen.page.locator("h1").inner_text().replace("\n", "\u2028")
    assert seen.page.locator("script").count() == 4
    seen.page.get_by_role("button", name="image 2", exact=True).click()
    assert ATTACK in seen.page.locator(".panel h4").first.inner_text().replace("\n", "\u2028")
    assert seen.page.locator("body img").count() == 0
    seen.page.wait_for_timeout(100)


def test_hover_shows_the_values_there(seen: Visit) -> None:
    box = seen.page.locator("#accuracy-chart svg").bounding_box()
    before = seen.page.locator("#summary").inner_text()
    seen.page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + box["height"] * 0.4)
    named = seen.page.locator("#radius-named").inner_text()
    assert 0.5 < float(named) < 1.0
    assert seen.page.locator("#summary").inner_text() != before
    values = seen.page.evaluate("JSON.parse(document.getElementById('payload').textContent)")
    place = values["radii"].index(named)
    shown = seen.page.locator("#summary [data-value=accuracy]").all_inner_texts()
    assert shown == [one["accuracy"][place] for one in values["series"]]


def test_keyboard_moves_the_radius(seen: Visit) -> None:
    slider = seen.page.get_by_label("Radius", exact=True)
    slider.focus()
    for _ in range(3):
        seen.page.keyboard.press("ArrowRight")
    radii = seen.page.evaluate("JSON.parse(document.getElementById('payload').textContent).radii")
    assert seen.page.locator("#radius").get_attribute("aria-valuetext") == radii[3]
    assert seen.page.locator("#radius-named").inner_text() == radii[3]


def lines(seen: Visit, number: int) -> None:
    seen.page.wait_for_function(
        f"document.querySelectorAll('#accuracy-chart .mark-line path').length === {number}"
        f" && document.querySelectorAll('#summary tbody tr:not([hidden])').length === {number}"
    )


def test_one_method_is_shown_and_others_are_added(seen: Visit) -> None:
    lines(seen, 1)
    before = seen.chart()
    box = seen.page.get_by_role("checkbox", name=METHODS[1])
    assert not box.is_checked()
    assert "alpha/2 for the runner-up" in seen.page.locator("#kinds").inner_text()
    box.focus()
    seen.page.keyboard.press("Space")
    lines(seen, 2)
    assert seen.chart() != before
    seen.page.get_by_role("checkbox", name=METHODS[0]).uncheck()
    lines(seen, 1)


def test_first_label_is_at_its_tick(seen: Visit) -> None:
    """The labels of both axes stand in the middle below, or beside, their ticks: the first one too."""
    places = seen.page.evaluate(
        """() => [...document.querySelectorAll("#accuracy-chart .role-axis")].slice(0, 4).flatMap((axis) => {
          const middle = (node) => { const box = node.getBoundingClientRect(); return box.left + box.width / 2; };
          const [tick, label] = [".role-axis-tick line", ".role-axis-label text"]
            .map((name) => axis.querySelector(name));
          return tick && axis.textContent.includes("radius") ? [middle(label) - middle(tick)] : [];
        })"""
    )
    assert len(places) == 1
    assert abs(places[0]) < 2.0
    assert "certified radius r (l2)" in seen.page.locator("#accuracy-chart svg").text_content()


def test_a_row_opens_its_details_by_keyboard_and_by_mouse(seen: Visit) -> None:
    made, page = example(), seen.page
    radii = [certificate.radius for certificate in made.groups["exact"]]
    # An input with a runner-up, certified and not the farthest, whatever was drawn.
    i = next(i for i in range(7, 40) if 0.0 < radii[i] < max(radii) and made.votes.counts[i, 1])
    button = page.get_by_role("button", name=f"image {i}", exact=True)
    button.focus()
    page.keyboard.press("Enter")
    assert button.get_attribute("aria-expanded") == "true"
    assert page.locator(".panel").count() == 1
    said = page.locator(".panel .sentence").inner_text()
    own = str(made.groups["exact"][i]).removeprefix(f"image {i}: ")
    assert said == own[0].upper() + own[1:] + "."
    bars = page.locator(".panel .bars li").all_inner_texts()
    top, second = made.votes.classes[i, :2].tolist()
    counts = [int(text.split("(")[0].split()[-1]) for text in bars]
    assert counts == [k for k in made.votes.counts[i].tolist() if k]
    assert sum(counts) == 200
    assert "certified" in bars[0]
    assert bars[0].startswith(str(top))
    assert "runner-up" in bars[1]
    assert bars[1].startswith(str(second))
    widths = page.locator(".panel .bar span").evaluate_all("(all) => all.map((one) => parseFloat(one.style.width))")
    assert widths == pytest.approx([k / 2 for k in counts])
    other = made.groups["bonferroni"][i].radius
    shown = float(page.locator(".panel .others").inner_text().rpartition(" ")[2])
    assert other - 1e-4 < shown <= other

    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.textContent") == f"image {i + 1}"
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Escape")
    assert page.locator(".panel").count() == 0
    page.locator(f"#rows tbody tr[data-row='{i}'] td").last.click()
    assert page.locator(".panel").count() == 1

    page.get_by_label("Search").fill(f"image {i}")
    page.locator(f"#rows tbody tr[data-row='{i}']").click()
    above = page.locator(".near button").last
    assert float(above.inner_text().rpartition(" ")[2]) >= made.groups["exact"][i].radius - 1e-4
    name = above.inner_text().removeprefix("Next above: ").rpartition(",")[0]
    above.click()
    assert page.locator("#rows tr.open th").inner_text() == name
    assert page.evaluate("document.activeElement.textContent") == name


def test_a_refutation_has_its_place(seen: Visit) -> None:
    seen.page.get_by_role("button", name="image 2", exact=True).click()
    panel = seen.page.locator(".panel")
    assert panel.locator("h4").first.inner_text().startswith("Refuted at distance 0.7001, by class 1 ")
    assert panel.locator("figcaption").all_inner_texts() == ["the input", "the point that refutes"]
    places = panel.locator(".thumb").evaluate_all("(all) => all.map((one) => one.style.backgroundPosition)")
    assert places == ["-96px 0px", f"-{48 * (INPUTS % 11)}px -{48 * (INPUTS // 11)}px"]
    seen.page.get_by_role("button", name="image 7", exact=True).click()
    assert seen.page.locator(".refuted").count() == 0


def test_a_long_table_can_be_searched_sorted_and_opened(browser: "Browser", tmp_path: Path) -> None:
    path = tmp_path / "large.html"
    made = example(3_000, methods=("bonferroni", "top_class"))
    shown = made.groups["bonferroni"][:2_000]
    name = [c.id for c in shown if not c.abstained][-1]  # of four digits: no other one contains it
    path.write_text(page(made, pictures=False), encoding="utf-8", newline="\n")
    seen = visit(browser, path)
    assert seen.page.locator("#matches").inner_text() == "2,000 of 2,000 inputs"
    seen.page.get_by_label("Search").fill(name)
    assert seen.column(ID - 1) == [name]
    seen.page.get_by_role("button", name=name, exact=True).click()
    assert "Votes of 200 noisy copies" in seen.page.locator(".panel").inner_text()
    certified = sum(not certificate.abstained for certificate in shown)
    assert f" of the {certified:,} in this table, " in seen.page.locator(".near").inner_text()
    seen.page.get_by_label("Search").fill("")
    seen.page.locator("#rows th[data-key=radius]").get_by_role("button").click()
    assert seen.column(RADIUS - 1)[0] == "0.0000"
    assert seen.page.locator("#page").inner_text() == "Page 1 of 40"
    assert seen.complaints == []
    seen.page.context.close()


def test_choosing_other_certificates_changes_histogram_and_table(seen: Visit) -> None:
    bars = str(seen.page.locator("#histogram-chart svg").inner_html())
    radii = seen.column(RADIUS)
    seen.page.get_by_label("Certificates of").select_option("1")
    assert seen.column(RADIUS) != radii
    seen.page.wait_for_timeout(200)
    assert seen.page.locator("#histogram-chart svg").inner_html() != bars
    made = example()
    group = made.groups[METHODS[1]]
    right = [c.predicted == label for c, label in zip(group, made.labels.tolist(), strict=True) if c.radius > 0.0]
    said = (
        f"{len(right)} of {INPUTS} inputs are certified ({sum(right)} predicted right, {right.count(False)} predicted"
    )
    assert f"{said} wrong)" in seen.page.locator("#histogram-words").inner_text()


def test_sorting_sorts(seen: Visit) -> None:
    head = seen.page.locator("#rows th[data-key=radius]")
    for direction in ("ascending", "descending"):
        head.get_by_role("button").click()
        assert head.get_attribute("aria-sort") == direction
        shown = [float(text) for text in seen.column(RADIUS)]
        assert shown == sorted(shown, reverse=direction == "descending")
    everything = sorted(certificate.radius for certificate in example().groups["exact"])
    assert shown[0] == pytest.approx(everything[-1], abs=1e-3)
    seen.page.locator("#rows th[data-key=id]").get_by_role("button").click()
    named = [text for text in seen.column(ID) if text.startswith("image")]
    assert named[:9] == [f"image {i}" for i in range(2, 11)]
    assert head.get_attribute("aria-sort") is None


def test_filtering_filters_and_pages_turn(seen: Visit) -> None:
    assert seen.page.locator("#page").inner_text() == "Page 1 of 3"
    seen.page.get_by_role("button", name="Next").click()
    assert seen.column(ID)[0] == "image 50"
    seen.page.get_by_label("Outcome", exact=True).select_option("abstained")
    assert set(seen.column(OUTCOME)) == {"abstained"}
    count = sum(certificate.abstained for certificate in example().groups["exact"])
    assert seen.page.locator("#matches").inner_text() == f"{count} of {INPUTS} inputs"
    seen.page.get_by_label("Outcome", exact=True).select_option("")
    seen.page.get_by_label("Search").fill("IMAGE 7")
    assert seen.column(ID)[0] == "image 7"
    assert all("image 7" in text for text in seen.column(ID))
    seen.page.get_by_label("Search").fill("")
    seen.page.get_by_label("Radius at least").fill("0.5")
    assert min(float(text) for text in seen.column(RADIUS)) >= 0.5


def test_download_holds_the_table(seen: Visit, tmp_path: Path) -> None:
    with seen.page.expect_download() as started:
        seen.page.get_by_role("button", name="Download CSV").click()
    started.value.save_as(tmp_path / "table.csv")
    text = (tmp_path / "table.csv").read_bytes().decode("utf-8")
    rows = list(csv.DictReader(StringIO(text, newline="")))
    made = example()
    assert len(rows) == INPUTS
    assert rows[0]["id"] == ATTACK
    assert rows[1]["id"] == "'" + FORMULA
    for row, certificate in zip(rows, made.groups["exact"], strict=True):
        assert certificate.radius - 1e-3 < float(row["radius"]) <= certificate.radius
        assert (row["predicted"] == "") == certificate.abstained
        assert row["n"] == "200"
    assert [row["radius"] for row in rows[:50]] == seen.column(RADIUS)


def test_pictures_are_drawn(seen: Visit) -> None:
    thumbs = seen.page.locator("#rows .thumb")
    assert thumbs.count() == 50
    places = {thumbs.nth(i).evaluate("(node) => node.style.backgroundPosition") for i in range(50)}
    assert len(places) == 50
    size = seen.page.evaluate(
        "() => new Promise((done) => { const picture = new Image(); picture.onload = () => done(picture.width);"
        " picture.src = JSON.parse(document.getElementById('payload').textContent).sheet.uri; })"
    )
    assert size == 11 * 48


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_readable_in_light_and_dark_wide_and_narrow(
    browser: "Browser", file: Path, tmp_path: Path, scheme: str, width: int
) -> None:
    made = visit(browser, file, color_scheme=scheme)
    made.page.set_viewport_size({"width": width, "height": 800})
    made.page.wait_for_timeout(100)
    assert made.page.evaluate("document.documentElement.scrollWidth") <= width
    assert made.page.locator("#accuracy-chart svg").bounding_box()["width"] <= width
    made.page.get_by_role("button", name="image 2", exact=True).click()
    assert made.page.locator(".panel").bounding_box()["width"] <= width
    made.page.evaluate("window.scrollTo(0, 0)")
    contrast = made.page.evaluate(CONTRAST)
    assert min(contrast) >= 4.5
    picture = tmp_path / "page.png"
    made.page.screenshot(path=picture)
    assert picture.stat().st_size > 10_000
    assert made.complaints == []
    made.page.context.close()


def test_the_board_filters_and_draws(browser: "Browser", tmp_path: Path) -> None:
    """Rows and curves follow the filters and the boxes; the page asks for nothing, and its links lead to files."""
    x = np.random.default_rng(0).random((60, 1, 8, 8)).astype(np.float32)
    settings = spec(scores="none", runner_ups=None, limit=None, n=60, n0=20, data="x")
    data = from_arrays(x, linear(x).argmax(axis=1))
    sample(settings, as_classifier(linear, num_classes=10), data, tmp_path / "evidence")
    script = "<script>window.broken=1</script>"
    write_card(tmp_path / "board" / "held", model=script, data="a", evidence="../evidence", claims=[[0.01, 0.1]])
    write_card(tmp_path / "board" / "false", data="b", evidence="../evidence", claims=[[0.01, 1.0]])
    write_card(tmp_path / "board" / "words", data="b", claims=[[0.01, 0.9]])
    assert run(["board", str(tmp_path / "board"), "-o", str(tmp_path / "site"), "--method", "top_class"]) == 0
    made = visit(browser, tmp_path / "site" / "index.html", table=".entries")
    page = made.page
    curves = "#chart-0 .mark-line path[d]"

    def shown() -> tuple[list[str], int]:
        page.wait_for_timeout(200)
        long = "(lines) => lines.filter((line) => line.getAttribute('d').length > 9).length"
        drawn = page.locator(curves).evaluate_all(long)
        names = page.locator(".entries tbody tr:visible th").all_inner_texts()
        return [name.split()[0] for name in names], drawn

    assert shown() == (["false", "held", "words"], 2)
    page.select_option("#data", "b")
    assert shown() == (["false", "words"], 1)
    page.select_option("#verdict", "does not hold")
    assert shown() == (["false"], 1)
    page.get_by_label("curve of false").uncheck()
    assert shown() == (["false"], 0)
    page.select_option("#data", "")
    page.select_option("#verdict", "")
    page.fill("#search", "window.broken")
    assert shown() == (["held"], 1)
    assert page.locator("#matches").inner_text() == "1 of 3 entries"
    page.get_by_role("link", name="held").click()
    page.wait_for_selector("#accuracy-chart svg")
    assert "holds" in page.locator("#claims").inner_text()
    page.get_by_role("link", name="All entries").click()
    page.wait_for_selector("#chart-0 svg")
    assert made.complaints == []
    assert page.evaluate("window.broken") is None
    assert all(url.startswith(("data:", "blob:", tmp_path.as_uri())) for url in made.requests)
    page.context.close()
