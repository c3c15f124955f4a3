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
