"""Sweeps in storms: lost answers, refusals, evictions with and without notice, dead ticks, late and damaged reports."""

from pathlib import Path

import numpy as np
import pytest

from proteus_spot.bidding.market.model import EndCause
from proteus_spot.infra.simulated_ec2.faults import Fault, FaultKind
from proteus_spot.infra.trials.trial_documents import TrialReport
from tests.support.market_bill import bill_of, by_second
from tests.support.sweep_world import SweepWorld, sweep_spec

#: Some in `make test`, the rest in `make storms`.
SEEDS = [pytest.param(seed, marks=() if seed < 1 else (pytest.mark.storm,)) for seed in range(40)]
STEPS = 20


class Died(BaseException):
    """The end of a tick's process."""


@pytest.mark.parametrize("seed", SEEDS)
def test_no_trial_is_lost_and_the_ledger_is_the_bill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    world = SweepWorld(tmp_path, monkeypatch)
    world.begin_sweep(sweep_spec(stop="none", parallel=int(rng.integers(1, 5)), seed=seed))
    world.falsify = lambda order, report: _late(rng, report)
    for _ in range(45):
        _strike(world, rng)
        _tick_or_die(world, rng, monkeypatch)
        world.advance(120)
        if world.job.state.terminal:
            break
    world.falsify = lambda order, report: report
    figures = world.to_the_end(400)
    assert figures["state"] == "finished"
    assert [(trial["state"], trial["steps"]) for trial in figures["trials"]] == [("finished", STEPS)] * 4
    for number in range(4):
        reached = 0
        for order, machine in world.machines.items():
            if machine.trial == number and world.trained.steps.get(order):
                assert world.trained.steps[order][0] <= reached + 1, "no step is skipped"
                assert world.trained.steps[order][0] > machine.restored, "no saved step is trained again"
                reached = max(reached, world.trained.steps[order][-1])
        assert reached == STEPS
    facts = world.sweep_facts()
    assert not [fact for fact in facts if fact.alive]
    assert len({fact.order_id for fact in facts}) == len(facts), "no order bought twice"
    assert figures["evictions"] == sum(fact.end_cause is EndCause.EVICTED for fact in facts)
    assert world.store.purchases.spent("sweep") == sum(bill_of(world.market, by_second, by_second).values())
    world.close()


def _late(rng: np.random.Generator, report: TrialReport) -> TrialReport | None:
    """Lose a report now and then; the next one has what it had."""
    return None if report.ended is None and rng.random() < 0.2 else report


def _strike(world: SweepWorld, rng: np.random.Generator) -> None:
    alive = [fact.instance_id for fact in world.sweep_facts() if fact.alive]
    if alive and rng.random() < 0.15:
        kind = FaultKind.KILL if rng.random() < 0.5 else FaultKind.MARK
        world.market.add_fault(Fault(kind, instance_id=str(rng.choice(alive))))
    if rng.random() < 0.2:
        kind = (FaultKind.LOSE_ANSWER, FaultKind.CAPACITY, FaultKind.UNAVAILABLE)[int(rng.integers(3))]
        world.market.add_fault(Fault(kind, operation="launch", times=1))


def _tick_or_die(world: SweepWorld, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a tick; some die at a call of the market, before or after it."""
    with monkeypatch.context() as patch:
        if rng.random() < 0.2:
            name = ("launch", "terminate", "describe")[int(rng.integers(3))]
            call, dies_after = getattr(world.market, name), bool(rng.random() < 0.5)

            def dies(*arguments: object) -> object:
                if dies_after:
                    call(*arguments)
                raise Died

            patch.setattr(world.market, name, dies)
        try:
            world.tick_job("sweep")
        except Died:
            world.store.claims.release_all()  # its claim expires in under two ticks
