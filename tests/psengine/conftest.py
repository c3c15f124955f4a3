"""Fixtures of the engine's tests."""

import pytest


@pytest.fixture
def announced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the smallest rows of partitions' own be worth a message of their own, after what others read."""
    monkeypatch.setattr("psengine.worker.parameter_client._REST_BYTES", 1)
