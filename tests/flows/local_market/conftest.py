"""What the runs of a module share."""

from pathlib import Path

import pytest

from tests.support.run_markets import CHEAP, SECOND, write_changes


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def flat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A market in which nobody is ever taken."""
    path = tmp_path_factory.mktemp("flat") / "prices.csv"
    return write_changes(path, {CHEAP: [(0, 10_000)], SECOND: [(0, 12_000)]})
