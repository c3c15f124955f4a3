from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.task_runtime import TaskRuntime


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TaskRuntime]:
    """A world whose market is calm."""
    world = TaskRuntime(tmp_path, monkeypatch)
    yield world
    world.close()


@pytest.fixture
def taking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TaskRuntime]:
    """A world whose market takes everything 1500 s after the job's begin."""
    world = TaskRuntime(tmp_path, monkeypatch, taken_after_s=1500)
    yield world
    world.close()
