"""The example of docs/engine.md fits its line in three ways, and the page names modules that there are."""

import re
import runpy
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "engine.md"
EXAMPLE = PAGE.parent / "examples" / "least_squares.py"


def test_the_example_finds_the_weights_in_three_ways(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    weights = "[ 1.  -2.   0.5]"
    assert capsys.readouterr().out.splitlines() == [weights, f"10 {weights}", weights]


def test_the_modules_that_the_page_names_exist() -> None:
    named = set(re.findall(r"`([a-z_]+/[a-z_/]+\.py)`", PAGE.read_text()))
    assert len(named) > 20
    roots = PAGE.parents[1], PAGE.parents[1] / "psengine"
    assert not [name for name in sorted(named) if not any((root / name).exists() for root in roots)]
