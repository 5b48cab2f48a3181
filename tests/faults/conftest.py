"""The ledger of faults, printed at the end."""

from pathlib import Path

import pytest

from tests.faults.run import Ledger, arguments, call, lay_out

LEDGER = Ledger()


@pytest.fixture
def ledger() -> Ledger:
    return LEDGER


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home: Path = tmp_path_factory.mktemp("undisturbed")
    lay_out(home)
    assert call(home, arguments("run")) == (0, "")
    return home / "run"


@pytest.fixture(scope="session")
def undisturbed_by_time(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home: Path = tmp_path_factory.mktemp("by_time")
    lay_out(home)
    assert call(home, arguments("run", shard_inputs=None)) == (0, "")
    return home / "run"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    lay_out(tmp_path)
    return tmp_path


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if LEDGER.rows:
        terminalreporter.write_sep("=", "faults")
        terminalreporter.write_line(LEDGER.table())
