"""The log of a training run: purchases as they happen, figures at growing intervals."""

import pytest

import proteus_spot.tasks.reports.job_log
from proteus_spot.infra.state.records import ObservationKind
from proteus_spot.tasks.reports.job_log import JobLog, state_and_spending
from tests.support.task_runtime import TaskRuntime, spec


class RealClock:
    now = 1000.0

    def now_s(self) -> float:
        return self.now


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> RealClock:
    clock = RealClock()
    monkeypatch.setattr(proteus_spot.tasks.reports.job_log, "SystemClock", lambda: clock)
    return clock


def test_purchases_and_ends_are_lines_and_so_are_the_figures(here: TaskRuntime, real: RealClock) -> None:
    here.begin(spec())
    lines: list[str] = []
    log = JobLog("job", lines.append)
    log.look()
    assert [line.partition(" (")[0] for line in lines] == [
        "bought 1 x c4.large/us-east-1a on demand",
        "clock 0, loss -, $0.0000 spent, 0 nodes ready, 0 evictions, holding 1xc4.large/us-east-1a",
    ]
    here.tick(spec())
    here.store.jobs.observe("job", here.clock.at_s, ObservationKind.PROGRESS, {"clock": 7, "loss": 0.25, "ready": 2})
    lines.clear()
    log.look()
    assert lines == [], "it does not look again at once"
    real.now += 10
    log.look()
    assert lines[0].startswith("bought 2 x c4.large/us-east-1a at a bid of $")
    assert lines[1].startswith("clock 7, loss 0.2500, $0.1450 spent, 2 nodes ready")
    assert state_and_spending("job")[0] == "starting"


def test_lines_of_figures_grow_rarer(here: TaskRuntime, real: RealClock) -> None:
    here.begin(spec())
    lines: list[str] = []
    log = JobLog("job", lines.append)
    for _ in range(24 * 3600 // 10):
        log.look()
        real.now += 10
    assert 24 * 12 <= len(lines) < 24 * 12 + 20, "a line every five minutes"
