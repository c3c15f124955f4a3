"""Late ticks: of those that an outage made late one decides, and a constant delay stops none."""

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

import proteus_spot.tasks.market.tick
from proteus_spot.tasks.market.tick import is_overtaken
from tests.support.task_runtime import TaskRuntime

TICK_S = 120.0


@pytest.fixture
def real(here: TaskRuntime, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The real time `at_s`, by which also claims expire; every run is one of a deployment."""
    clock = SimpleNamespace(at_s=1_000_000.0)
    claims: dict[str, float] = {}

    def claim(name: str, holder: str, ttl_s: float) -> bool:
        if claims.get(name, 0.0) > clock.at_s:
            return False
        claims[name] = clock.at_s + ttl_s
        return True

    monkeypatch.setattr(
        proteus_spot.tasks.market.tick, "SystemClock", lambda: SimpleNamespace(now_s=lambda: clock.at_s)
    )
    monkeypatch.setattr(here.store.claims, "claim", claim)
    monkeypatch.setattr("prefect.runtime.deployment", SimpleNamespace(id="a deployment"))
    return clock


def starts(monkeypatch: pytest.MonkeyPatch, scheduled_s: float) -> bool:
    """Whether a run that was scheduled then decides, if it starts now."""
    run = SimpleNamespace(id="a run", scheduled_start_time=datetime.fromtimestamp(scheduled_s, UTC))
    monkeypatch.setattr("prefect.runtime.flow_run", run)
    return not is_overtaken()


def test_after_an_outage_of_ten_ticks_one_late_tick_decides(
    real: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    first_s = real.at_s - 10 * TICK_S - 5
    decided = []
    for number in range(11):
        decided.append(starts(monkeypatch, first_s + number * TICK_S))
        real.at_s += 1.0
    assert decided == [True, *[False] * 9, True], "the first late one, and the one that is in time"


@pytest.mark.parametrize("lag_s", [121.0, 130.0, 239.0, 1000.0])
def test_where_every_start_is_late_every_tick_decides(
    real: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, lag_s: float
) -> None:
    for _ in range(5):
        assert starts(monkeypatch, real.at_s - lag_s)
        real.at_s += TICK_S


def test_a_late_tick_that_dies_leaves_it_to_another(real: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    assert starts(monkeypatch, real.at_s - 1000)
    assert not starts(monkeypatch, real.at_s - 500)
    real.at_s += TICK_S / 2
    assert starts(monkeypatch, real.at_s - 400)
