"""An application is made from its name and what is known of the data."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from proteus_spot.psengine.apps.registry import resolve
from proteus_spot.psengine.config import JobError

HERE = "tests.psengine.apps.test_registry"
SIZES = {"n_inputs": 4, "n_classes": 3, "n_examples": 2}


class AskedForOne:
    def __init__(self, n_examples: int, *, k: int = 1) -> None:
        self.asked = {"n_examples": n_examples, "k": k}


class AskedForAll:
    def __init__(self, **params: Any) -> None:
        self.asked = params


class AskedForNone:
    asked: dict[str, Any] = {}  # noqa: RUF012 - it has no constructor


def make(**params: Any) -> AskedForAll:
    return AskedForAll(**params)


class Raises:
    def __init__(self) -> None:
        raise ZeroDivisionError("by the user")


@pytest.mark.parametrize(
    ("name", "params", "asked"),
    [
        ("AskedForOne", {"k": 7}, {"n_examples": 2, "k": 7}),
        ("AskedForAll", {"k": 7}, SIZES | {"k": 7}),
        ("AskedForNone", {}, {}),
        ("make", {}, SIZES),
    ],
)
def test_the_sizes_that_the_constructor_takes_are_handed_in(
    name: str, params: dict[str, Any], asked: dict[str, Any]
) -> None:
    app: Any = resolve(f"{HERE}:{name}", SIZES | params)
    assert app.asked == asked


@pytest.fixture
def _broken(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_app.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("_broken")
@pytest.mark.parametrize(
    ("name", "params", "says"),
    [
        (f"{HERE}:AskedForOne", {"q": 1}, "does not take these app_params: .*unexpected keyword argument 'q'"),
        (f"{HERE}:AskedForNone", {"k": 1}, "does not take these app_params"),
        (f"{HERE}:Raises", {}, "does not take these app_params: ZeroDivisionError: by the user"),
        (f"{HERE}:Nobody", {}, "cannot be imported on this node: .*has no attribute 'Nobody'"),
        ("broken_app:App", {}, "cannot be imported on this node: ZeroDivisionError: division by zero"),
        ("no_such_module:App", {}, "cannot be imported on this node: No module named 'no_such_module'"),
    ],
)
def test_what_cannot_be_made_is_told(name: str, params: dict[str, Any], says: str) -> None:
    with pytest.raises(JobError, match=says):
        resolve(name, SIZES | params)


class Cancels:
    def __init__(self) -> None:
        raise asyncio.CancelledError("enough")


def test_a_module_or_a_constructor_that_raises_a_cancellation_is_an_error_of_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cancelling_app.py").write_text('import asyncio\nraise asyncio.CancelledError("enough")\n')
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(JobError, match=r"cannot be imported on this node: CancelledError: enough"):
        resolve("cancelling_app:App", {})
    with pytest.raises(JobError, match=r"does not take these app_params: CancelledError: enough"):
        resolve(f"{HERE}:Cancels", {})
