"""Seeded scripts of faults over a market that behaves as EC2 does; the market's own log is asserted over."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from proteus_spot.bidding.evictions.fit_capacity import capacity_trace
from proteus_spot.bidding.market.model import EndCause, InstanceState
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.state.records import JobState
from tests.support.fault_scripts import KINDS, FaultScript, fault_script
from tests.support.flow_processes import Boundary
from tests.support.job_world import BEGIN_S, MARKETS, JobWorld, spec

HOUR = 3600
#: However late what went wrong has passed, the job has ended by then, and its last machine an hour later.
ENOUGH_S = 9 * HOUR
#: Price of the job's reliable tier for an hour.
RELIABLE_HOUR_MICROS = 105_000


@contextmanager
def world(
    directory: Path, script: FaultScript, taken_after_s: int | None = 2400, **fields: object
) -> Iterator[JobWorld]:
    with pytest.MonkeyPatch.context() as patch:
        job = spec(**fields) if fields else None  # type: ignore[arg-type]
        here = JobWorld(directory, patch, Boundary(), job, script.behaviour, taken_after_s, str(script.seed))
        here.notice_copies, here.notice_delay_s = script.notice_copies, script.notice_delay_s
        for fault in script.faults:
            here.market.add_fault(fault)
        here.events = sorted(((BEGIN_S + at_s, event) for at_s, event in script.events), key=lambda pair: pair[0])
        try:
            yield here
        finally:
            here.store.close()


def live(here: JobWorld) -> None:
    """Let the job happen; a train run that failed is retried every half hour, as Prefect's Retry does it."""
    run = here.train()
    while run.error is not None and here.now_s < BEGIN_S + 4 * HOUR:
        here.advance(here.now_s + HOUR / 2)
        run = here.train()
    here.advance(BEGIN_S + ENOUGH_S)


def check_money(here: JobWorld) -> None:
    spent, bill = here.store.purchases.spent(here.job_id), here.bill()
    assert spent >= bill
    assert spent == bill or here.ended_unseen()


def check(here: JobWorld, script: FaultScript, *states: JobState) -> None:
    assert here.faults == []
    assert here.bought_twice() == {}
    assert {fact.state for fact in here.ours()} == {InstanceState.TERMINATED}, "stopped machines are ended, too"
    job = here.store.jobs.job(here.job_id)
    assert job.state in (states or (JobState.FINISHED,)), (job.failure, job.stop_why)
    check_money(here)
    others = [fact for fact in here.market.log() if fact.instance_id in here.others]
    assert all(fact.end_cause is not EndCause.USER for fact in others), "machines of another owner were ended"


SEEDS = [pytest.param(seed, marks=() if seed < 4 else pytest.mark.storm) for seed in range(300)]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_job_comes_through_a_script_of_faults(seed: int, tmp_path: Path) -> None:
    script = fault_script(seed)
    with world(tmp_path, script) as here:
        live(here)
        check(here, script)


def test_the_scripts_have_every_kind_of_fault() -> None:
    assert {kind for seed in range(300) for kind in fault_script(seed).kinds} == set(KINDS)


@pytest.mark.parametrize("billing", ["hourly-refund", "per-second-first-hour-free"])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.storm) for seed in range(1, 20))])
def test_a_budget_is_never_passed_whatever_goes_wrong(billing: str, seed: int, tmp_path: Path) -> None:
    script = fault_script(seed)
    random = np.random.default_rng(seed)
    budget_usd = round(float(random.uniform(0.06, 0.3)), 2)
    with world(tmp_path, script, budget_usd=budget_usd, transient={"billing": billing}) as here:
        if billing == "hourly-refund" and here.spec.budget_micros < RELIABLE_HOUR_MICROS:
            error = here.train().error
            assert isinstance(error, InputError)
            assert "the reliable tier alone" in str(error)
            assert here.market.log() == []
            return
        live(here)
        check(here, script, JobState.STOPPED, JobState.FINISHED, JobState.FAILED)
        assert here.bill() <= here.spec.budget_micros, script.kinds
        assert here.store.purchases.spent(here.job_id) <= here.spec.budget_micros, script.kinds


@pytest.mark.parametrize("billing", ["hourly-refund", "per-second-first-hour-free"])
@pytest.mark.parametrize("deadline", ["2h", "200m"])
def test_a_deadline_is_met_in_a_market_that_gives_nothing(billing: str, deadline: str, tmp_path: Path) -> None:
    script = fault_script(0, only=("notices",))
    with world(tmp_path, script, deadline=deadline, transient={"billing": billing}) as here:
        nothing = capacity_trace([0] * 1000, 600, BEGIN_S)
        here.market.capacity.traces = dict.fromkeys(MARKETS, nothing)
        here.training.scales = True  # one machine alone would take four and a half hours
        live(here)
        check(here, script)
        ended_at_s = here.store.jobs.job(here.job_id).ended_at_s
        assert ended_at_s is not None
        assert ended_at_s <= here.spec.deadline_s(BEGIN_S)
        assert {fact.bid_micros for fact in here.ours()} == {None}
        assert len(here.ours()) > 1, "on-demand machines beside the reliable one"


def test_a_job_ends_by_itself_where_a_deadline_and_a_budget_cannot_both_be_kept(tmp_path: Path) -> None:
    """The budget wins."""
    script = fault_script(0, only=("notices",))
    with world(tmp_path, script, deadline="2h", budget_usd=0.15) as here:
        here.market.capacity.traces = dict.fromkeys(MARKETS, capacity_trace([0] * 1000, 600, BEGIN_S))
        live(here)
        check(here, script, JobState.STOPPED)
        assert here.store.purchases.spent(here.job_id) <= here.spec.budget_micros
        assert "budget" in (here.store.jobs.job(here.job_id).stop_why or "")
