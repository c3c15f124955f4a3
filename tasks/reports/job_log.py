"""The log of a job's training run: purchases and ends of machines as they happen, figures at growing intervals."""

from collections.abc import Callable, Mapping

from proteus_spot.bidding.market.model import EndCause
from proteus_spot.bidding.market.money import usd
from proteus_spot.infra.clock import SystemClock
from proteus_spot.infra.state.records import AllocationRecord, ObservationKind
from proteus_spot.tasks.task_runtime import current_runtime

#: Real seconds between two looks, and from one line of figures to the next: at first, and at most.
_LOOK_S = 5.0
_FIRST_S = 10.0
_MOST_S = 300.0


class JobLog:
    """Writes a job's progress as lines of a log.

    The number of lines grows with the purchases, and with the logarithm of time, then slowly with time.

    Parameters
    ----------
    write : receives each line.
    """

    def __init__(self, job_id: str, write: Callable[[str], object]) -> None:
        self._job_id = job_id
        self._write = write
        self._clock = SystemClock()
        self._look_s = float("-inf")
        self._figures_s = float("-inf")
        self._interval_s = _FIRST_S
        self._lives: dict[str, int] = {}

    def look(self, *, at_once: bool = False) -> None:
        """Write what is new since the last look; it reads the database only every few seconds, or `at_once`."""
        now_s = self._clock.now_s()
        if not at_once and now_s - self._look_s < _LOOK_S:
            return
        self._look_s = now_s
        records = current_runtime().store.purchases.allocations(self._job_id)
        for record in records:
            for line in self._news(record):
                self._write(line)
        if at_once or now_s - self._figures_s >= self._interval_s:
            if self._figures_s > 0:
                self._interval_s = min(2 * self._interval_s, _MOST_S)
            self._figures_s = now_s
            self._write(self._figures(records))

    def _news(self, record: AllocationRecord) -> list[str]:
        """Return lines on an allocation that is new, or of which machines have ended."""
        a = record.allocation
        alive = sum(life.ended_at_s is None for life in record.machines)
        before = self._lives.get(record.allocation_id)
        self._lives[record.allocation_id] = alive
        lines = []
        if before is None:
            price = "on demand" if a.bid_micros is None else f"at a bid of {usd(a.bid_micros)}"
            lines.append(f"bought {a.count} x {a.market} {price} ({record.allocation_id})")
            before = a.count
        if alive < before:
            causes = {life.end_cause for life in record.machines if life.ended_at_s is not None}
            verb = "the market took" if EndCause.EVICTED in causes else "ended"
            lines.append(f"{verb} {before - alive} x {a.market} ({record.allocation_id})")
        return lines

    def _figures(self, records: list[AllocationRecord]) -> str:
        store = current_runtime().store
        point = store.jobs.last_observation(self._job_id, ObservationKind.PROGRESS)
        last: Mapping[str, object] = {} if point is None else point.payload
        loss = last.get("loss")
        held = ", ".join(f"{r.living_count}x{r.allocation.market}" for r in records if r.alive) or "nothing"
        evictions = sum(record.end_cause is EndCause.EVICTED for record in records)
        shown = f"{loss:.4f}" if isinstance(loss, float) else "-"
        return (
            f"clock {last.get('clock', 0)}, loss {shown}, {usd(store.purchases.spent(self._job_id))} spent, "
            f"{last.get('ready', 0)} nodes ready, {evictions} evictions, holding {held}"
        )


def state_and_spending(job_id: str) -> tuple[str, str]:
    """Return the state of a job and what it has cost, as text."""
    store = current_runtime().store
    return str(store.jobs.job(job_id).state), usd(store.purchases.spent(job_id))
