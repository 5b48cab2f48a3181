"""The theory and the code point to one another: every number cited exists, every one that exists is cited."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
STATED = re.compile(r"^(?:\*\*|#+ )([TF]\d+[a-z]?) \(", re.MULTILINE)
CITED = re.compile(r"\b([TF]\d+[a-z]?)\b")
CITING = ("src/buckler", "benchmarks")


def stated(text: str) -> list[str]:
    return STATED.findall(text)


def citations() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for room in CITING:
        for path in sorted((ROOT / room).rglob("*.py")):
            for number in CITED.findall(path.read_text(encoding="utf-8")):
                found.setdefault(number, []).append(path.relative_to(ROOT).as_posix())
    return found


def test_every_number_is_stated_once_and_in_order() -> None:
    numbers = stated((ROOT / "docs" / "theory.md").read_text(encoding="utf-8"))
    assert len(set(numbers)) == len(numbers) >= 30
    for letter in "TF":
        own = [n for n in numbers if n.startswith(letter)]
        assert own == sorted(own, key=lambda n: (int(re.sub(r"\D", "", n)), n))


def test_every_citation_exists_and_every_statement_is_cited() -> None:
    numbers, cited = set(stated((ROOT / "docs" / "theory.md").read_text(encoding="utf-8"))), citations()
    assert {n: places for n, places in cited.items() if n not in numbers} == {}
    assert numbers - cited.keys() == set()


def test_references_inside_of_the_page_exist() -> None:
    text = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8")
    assert set(CITED.findall(text)) == set(stated(text))


def test_a_missing_number_is_noticed() -> None:
    assert stated("**T1 (a).** x\n### F2b (b)\ny") == ["T1", "F2b"]
    assert CITED.findall("as T99 and T18c say, not T or T9bc") == ["T99", "T18c"]
