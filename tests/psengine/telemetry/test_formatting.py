"""An error of the user's code is one line that says where in it."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from proteus_spot.psengine.telemetry.formatting import MOST_CHARACTERS, format_error

CODE = """import json

def outer():
    return inner()

def inner():
    return json.loads("no JSON")  # line 7: what fails is below, in somebody else's code

def quotient():
    return 1 / 0
"""


@pytest.fixture
def mine(tmp_path: Path) -> ModuleType:
    path = tmp_path / "mine.py"
    path.write_text(CODE)
    spec = importlib.util.spec_from_file_location("mine", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _raised(call: Callable[[], object]) -> BaseException:
    with pytest.raises((ValueError, ZeroDivisionError)) as caught:
        call()
    return caught.value


def test_the_line_is_the_users_last_one(mine: ModuleType) -> None:
    error = _raised(mine.outer)
    assert format_error(error, "mine:App") == "mine.py:7: JSONDecodeError: Expecting value: line 1 column 1 (char 0)"
    assert format_error(_raised(mine.quotient), "mine:App") == "mine.py:10: ZeroDivisionError: division by zero"
    assert format_error(_raised(mine.quotient), "mine.sub:App").startswith("mine.py:10: ")


def test_without_code_of_the_users_no_line_is_named(mine: ModuleType) -> None:
    error = _raised(mine.quotient)
    assert format_error(error) == format_error(error, "mlr") == "ZeroDivisionError: division by zero"
    assert format_error(error, "other:App") == "ZeroDivisionError: division by zero"
    assert format_error(ValueError("first\nsecond"), "mine:App") == "ValueError: first"


def test_a_long_text_of_an_exception_is_cut_and_one_that_cannot_be_made_is_said() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise KeyError("no text")

    assert format_error(ValueError("x" * 200_000)) == f"ValueError: {'x' * MOST_CHARACTERS}… (200000 characters)"
    assert format_error(Mute()) == "Mute: its text cannot be made (KeyError)"
