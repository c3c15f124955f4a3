"""A sweep as its state database shows it, while it runs and at its end."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from proteus_spot.bidding.tuning.sweep_events import TrialReported
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.state.records import JobState
from proteus_spot.infra.state.store import Store
from proteus_spot.tasks.reports.job_report import gather
from proteus_spot.tasks.sweeps.sweep_state import sweep_figures, sweep_view
from tests.support.job_states import JOB, record_job
from tests.support.sweep_states import SWEEP, finish_sweep, record_sweep
from tests.support.sweeps import OFFERS, TICK_S


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(f"sqlite:///{tmp_path}/state.db") as opened:
        yield opened


def test_a_sweep_that_runs(store: Store) -> None:
    world = record_sweep(store)
    view = sweep_view(store, SWEEP)
    assert (view.state, view.why, view.ended_s, view.market_s) == ("running", "", None, 5 * TICK_S)
    assert (view.trial_count, view.counts, view.evictions) == (4, {"running": 4}, 1)
    assert (view.spent_micros, view.refunded_micros) == (4 * 30_000, 30_000)
    first, second = view.trials[:2]
    assert (first.evictions, first.spent_micros, first.refunded_micros) == (1, 30_000, 30_000)
    assert (second.evictions, second.spent_micros, second.refunded_micros) == (0, 30_000, 0)
    assert (second.steps, second.value, second.params) == (4, 1.25, {"gamma": 0.0, "step": 1.0})
    assert second.curve_steps.tolist() == [1, 2, 3, 4]
    assert [(machine.trial, machine.cause) for machine in view.machines] == [
        (0, "evicted"), (1, ""), (2, ""), (3, ""), (0, "")
    ]  # fmt: skip
    assert view.machines[0].until_s == view.machines[4].from_s - TICK_S
    assert second.market == view.machines[1].market
    assert {market: prices.tolist() for market, (_, prices) in view.prices.items()} == {
        str(market): [offer.price_micros] for market, offer in OFFERS.items()
    }
    assert view.best is first
    live = sweep_view(store, SWEEP, world.engine)
    assert sweep_figures(live) == sweep_figures(view)


def test_the_share_of_checkpoints_is_that_of_all_machines_time(store: Store) -> None:
    world = record_sweep(store)
    (name, *_) = world.engine.sweep.deployments
    moved = TrialReported(world.now_s, 0, name, saved_step=1, upload_s=5.0, restore_s=3.0, save_s=2.0)
    world.tell(moved)
    view = sweep_view(store, SWEEP)
    machine_s = sum((its.until_s or view.last_s) - its.from_s for its in view.machines)
    assert view.checkpoint_share == pytest.approx(10.0 / machine_s)
    world.tell(replace(moved, upload_s=6.0))
    assert sweep_figures(sweep_view(store, SWEEP))["checkpoint_share"] == pytest.approx(11.0 / machine_s)


def test_the_figures_of_a_sweep_that_has_ended(store: Store) -> None:
    world = record_sweep(store)
    finish_sweep(world)
    figures = sweep_figures(sweep_view(store, SWEEP))
    assert list(figures) == [
        *(
            "sweep_id",
            "state",
            "why",
            "metric",
            "direction",
            "trials",
            "best",
            "ledger_usd",
            "refunded_usd",
            "evictions",
        ),
        *("checkpoint_share", "market_seconds"),
    ]
    assert (figures["sweep_id"], figures["state"], figures["why"]) == (SWEEP, "finished", "")
    assert figures["best"] == {"params": {"gamma": 0.0, "step": 0.001}, "value": 0.1, "steps": 10}
    assert figures["ledger_usd"] == pytest.approx(sum(trial["usd"] for trial in figures["trials"]))
    assert {trial["state"] for trial in figures["trials"]} == {"finished"}
    assert figures["trials"][0]["repeated_steps"] == 2
    assert figures["market_seconds"] == world.now_s - store.jobs.job(SWEEP).created_at_s


def test_why_a_sweep_ended(store: Store) -> None:
    world = record_sweep(store)
    store.jobs.request_stop(SWEEP, "asked to stop", "test", world.now_s)
    assert (sweep_view(store, SWEEP).state, sweep_view(store, SWEEP).why) == ("running", "stop")
    store.jobs.move_job(SWEEP, JobState.FAILED, world.now_s, failure="no trial has a value")
    view = sweep_view(store, SWEEP)
    assert (view.state, view.why, view.ended_s) == ("failed", "no trial has a value", world.now_s)


def test_a_job_is_no_sweep_and_a_sweep_no_job(store: Store) -> None:
    record_job(store, hours=1)
    record_sweep(store)
    with pytest.raises(InputError, match=rf"^job {JOB}: is not a sweep; `proteus report {JOB}` shows it$"):
        sweep_view(store, JOB)
    with pytest.raises(InputError, match=rf"^job {SWEEP}: is a sweep; `proteus sweep report {SWEEP}` writes"):
        gather(store, SWEEP)
