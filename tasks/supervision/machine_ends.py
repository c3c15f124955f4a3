"""Machines of a job that are ended at once, whatever their paid hour; their ends are entered in the journal."""

from collections.abc import Callable, Sequence
from typing import Any

from proteus_spot.bidding.engine.reconcile import by_order
from proteus_spot.bidding.market.model import InstanceFact
from proteus_spot.tasks.market.engine_journal import EngineJournal
from proteus_spot.tasks.market.job_opening import is_opened
from proteus_spot.tasks.market.listed_machines import end, job_machines, observed_events
from proteus_spot.tasks.task_runtime import current_runtime, runtime_task


def living_machines(job_id: str) -> list[InstanceFact]:
    """Return the machines of the job that the market says are alive."""
    return [fact for fact in job_machines(job_id) if fact.alive]


@runtime_task("end machines", market=True)
def end_machines(
    job_engine: EngineJournal[Any], ends: Callable[[InstanceFact], bool] = lambda fact: True
) -> list[InstanceFact]:
    """Terminate the living machines of the job for which `ends` is true; return them as they were.

    The market is asked which live: the book may lack a machine whose purchase was not answered.
    """
    ending = [fact for fact in living_machines(job_engine.job_id) if ends(fact)]
    if ending:
        end(job_engine.job_id, [fact.instance_id for fact in ending])
        _enter(job_engine, job_machines(job_engine.job_id))
    return ending


def _enter(job_engine: EngineJournal[Any], facts: Sequence[InstanceFact]) -> None:
    if is_opened(job_engine):
        now_s = current_runtime().now_s()
        job_engine.commit(lambda engine: observed_events(engine.holdings, facts, now_s), by_order(facts))
