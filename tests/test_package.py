"""What leaves the repository: the wheel, its page on a package index, and the workflows that test and publish it."""

import re
import tomllib
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
import yaml
from hatchling.builders.wheel import WheelBuilder

import buckler

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "buckler"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
ADDRESS = "https://example.org/someone/buckler"


def built(folder: Path) -> tuple[set[str], Message]:
    """Return the files of a wheel built now, and its metadata."""
    path = next(WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"]))
    with ZipFile(path) as wheel:
        names = set(wheel.namelist())
        return names, message_from_bytes(
            wheel.read(next(name for name in names if name.endswith(".dist-info/METADATA")))
        )


def targets(page: str) -> list[str]:
    return re.findall(r"\]\(([^)]+)\)", page)


def test_the_wheel_holds_the_package_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BUCKLER_REPOSITORY", raising=False)
    names, metadata = built(tmp_path)
    home = f"buckler-{buckler.__version__}.dist-info"
    assert {name.split("/")[0] for name in names} == {"buckler", home}
    ours = {f"buckler/{p.relative_to(SOURCE).as_posix()}" for p in SOURCE.rglob("*") if p.is_file()}
    assert {n for n in names if n.startswith("buckler/")} == {n for n in ours if "__pycache__" not in n}
    assert {"buckler/py.typed", "buckler/report/templates/page.html"} <= names
    assert f"{home}/licenses/LICENSE" in names
    assert metadata["Version"] == buckler.__version__
    assert set(PROJECT["optional-dependencies"]) == set(metadata.get_all("Provides-Extra", []))
    # Without an address nothing on the page of an index is broken: no picture, and no link that leads nowhere.
    page = str(metadata.get_payload())
    assert page.startswith("# Buckler")
    assert [to for to in targets(page) if not to.startswith(("https:", "#"))] == []
    assert metadata["Project-URL"] is None


def test_a_release_has_absolute_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUCKLER_REPOSITORY", ADDRESS + "/")
    _, metadata = built(tmp_path)
    assert f"Source, {ADDRESS}" in metadata.get_all("Project-URL", [])
    tag = f"v{buckler.__version__}"
    found = targets(str(metadata.get_payload()))
    assert [to for to in found if not to.startswith(("https:", "#"))] == []
    assert f"{ADDRESS}/raw/{tag}/docs/images/demo.png" in found
    for to in found:
        if to.startswith(ADDRESS):
            assert (ROOT / to.partition(f"/{tag}/")[2].partition("#")[0]).exists(), to


def jobs(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].values())


def test_workflows_call_targets_and_folders_that_are_there() -> None:
    there = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    steps = [step for path in WORKFLOWS for job in jobs(path) for step in job.get("steps", [])]
    targets = [job["strategy"]["matrix"]["target"] for path in WORKFLOWS for job in jobs(path) if "target" in str(job)]
    called = {name for step in steps for name in re.findall(r"\bmake ([a-z-]+)", step.get("run", ""))}
    called |= {target.split()[0] for listed in targets for target in listed}
    assert {"test", "test-all", "lowest", "platforms", "docs", "dist"} <= called <= there
    tested = [word for step in steps for word in step.get("run", "").split() if re.match(r"tests/|src$", word)]
    assert tested
    assert all((ROOT / word).exists() for word in tested)


def test_actions_are_pinned_and_jobs_end() -> None:
    for path in WORKFLOWS:
        for job in jobs(path):
            assert "uses" in job or job["timeout-minutes"] <= 120, path
            for step in job.get("steps", []):
                assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", step.get("uses", "a@" + 40 * "0")), (path, step)


def test_a_release_is_tested_first() -> None:
    release = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8"))["jobs"]
    assert release["test"] == {"uses": "./.github/workflows/test.yml"}
    assert (release["build"]["needs"], release["publish"]["needs"]) == ("test", "build")


def test_only_the_step_that_publishes_may_identify_itself() -> None:
    """Trusted publishing: no secret in any workflow, and a token for nobody but the last job."""
    for path in WORKFLOWS:
        text = path.read_text(encoding="utf-8")
        assert "secrets." not in text
        assert yaml.safe_load(text)["permissions"] == {"contents": "read"}
        for job in jobs(path):
            publishes = any(
                str(step.get("uses", "")).startswith(("pypa/gh-action-pypi-publish@", "actions/deploy-pages@"))
                for step in job.get("steps", [])
            )
            assert ("id-token" in job.get("permissions", {})) == publishes
