"""Whatever is lost on the way, no order is bought twice and no machine is forgotten: judged by the market's own log."""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from proteus_spot.bidding.market.model import EndCause, InstanceFact, LaunchRequest
from proteus_spot.bidding.market.spot_market import AccessRefused, LaunchRefused, MarketUnreachable
from proteus_spot.infra.simulated_ec2.rules.behaviour import HONEST
from proteus_spot.infra.state.records import IntentState
from proteus_spot.tasks.job_records import record_job
from proteus_spot.tasks.market.engine_journal import JobEngine
from proteus_spot.tasks.market.ingest import fetch_prices, history_days, markets_of
from proteus_spot.tasks.market.job_opening import open_job
from proteus_spot.tasks.market.purchases.reliable_purchases import secure_reliable_tier
from proteus_spot.tasks.market.purchases.sending import PurchaseBlocked
from proteus_spot.tasks.market.reaping import orphans
from tests.support.task_runtime import TaskRuntime, plain, spec

TICK_S = 120


class Killed(BaseException):
    """The process ends here."""


#: What becomes of a request to buy: None carries it out and answers.
ANSWERS: dict[str, Callable[[], BaseException] | None] = {
    "answered": None,
    "lost": lambda: MarketUnreachable("ReadTimeout", "lost"),
    "killed after": Killed,
    "unsent": lambda: MarketUnreachable("ConnectTimeoutError", "nobody there"),
    "throttled": lambda: MarketUnreachable("RequestLimitExceeded", "slow down"),
    "killed before": Killed,
    "no capacity": lambda: LaunchRefused("InsufficientInstanceCapacity", "none left"),
    "expired": lambda: AccessRefused("ExpiredToken", "expired"),
}
#: The answers after which the market has carried the request out all the same.
CARRIED_OUT = ("answered", "lost", "killed after")


class Unreliable:
    """The market of a runtime, whose answers to purchases come from a list; later ones are all given."""

    def __init__(self, here: TaskRuntime, answers: list[str]) -> None:
        self._launch, self._answers = here.market.launch, list(answers)

    def __call__(self, request: LaunchRequest) -> list[InstanceFact]:
        answer = self._answers.pop(0) if self._answers else "answered"
        facts = self._launch(request) if answer in CARRIED_OUT else []
        error = ANSWERS[answer]
        if error is not None:
            raise error()
        return facts


def step(here: TaskRuntime) -> None:
    """One tick, as a process that may be killed in it."""
    job = spec()
    try:
        plain(secure_reliable_tier)(job, JobEngine("job"))
        here.tick(job)
    except (Killed, PurchaseBlocked):
        pass  # the next process goes on


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    answers=st.lists(st.sampled_from(sorted(ANSWERS)), max_size=12),
    waits_s=st.lists(st.sampled_from([1, 15, 45, TICK_S]), min_size=12, max_size=12),
    taken=st.booleans(),
)
def test_no_order_is_bought_twice_and_none_is_forgotten(answers: list[str], waits_s: list[int], taken: bool) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        here = TaskRuntime(Path(folder), patch, taken_after_s=600 if taken else None)
        here.market.behaviour = HONEST
        plain(record_job)(spec())
        plain(fetch_prices)(markets_of(spec()), history_days())
        plain(open_job)(spec(), JobEngine("job"))
        patch.setattr(here.market, "launch", Unreliable(here, answers))
        for wait_s in waits_s:
            step(here)
            here.clock.at_s += wait_s
        for _ in range(10):
            step(here)
            here.clock.at_s += TICK_S
        check(here)
        here.close()


def check(here: TaskRuntime) -> None:
    """Compare the book with the market's log, when every answer has come and every read has caught up."""
    here.market.behaviour = replace(HONEST, instance_lag_s=(0, 0), request_lag_s=(0, 0))
    step(here)
    log = here.market.log()
    bought: dict[str, list[InstanceFact]] = {}
    for fact in log:
        bought.setdefault(fact.order_id, []).append(fact)
    intents = {intent.order_id: intent for intent in here.store.purchases.intents("job") if intent.kind != "lapse"}
    event(f"{len(bought)} purchases")
    assert bought.keys() <= intents.keys()
    for order_id, facts in bought.items():
        assert len({fact.token for fact in facts}) == 1
        assert len(facts) == intents[order_id].params["count"], "bought once"
        assert intents[order_id].state is IntentState.DONE, "not forgotten"
    held = {name for record in here.store.purchases.allocations("job", alive=True) for name in record.living_ids}
    assert held == {fact.instance_id for fact in log if fact.alive}
    assert plain(orphans)() == {}
    ended = {fact.end_cause for fact in log if not fact.alive}
    assert ended <= {EndCause.EVICTED}, "nothing of it was let go"
