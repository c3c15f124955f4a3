"""Ticks of a sweep on the simulated market: orders, reports, money, stops, and what may happen in between."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest

from proteus_spot.bidding.engine.events import BidEvent
from proteus_spot.bidding.market.model import LaunchRequest
from proteus_spot.bidding.market.traces import TraceSet
from proteus_spot.bidding.tuning.sweep_journal import from_record, replay, to_record
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.settings import load_settings
from proteus_spot.infra.simulated_ec2.faults import Fault, FaultKind
from proteus_spot.infra.state.job_tables import JobTables
from proteus_spot.infra.state.records import IntentState, JobState, StoreError
from proteus_spot.infra.storage.blobs import BlobError, Blobs
from proteus_spot.infra.storage.trial_paths import SweepPaths, TrialPaths
from proteus_spot.tasks.job_ends import how_it_goes_on, request_stop
from proteus_spot.tasks.local_market.run_checks import JobStatus, begun_before
from proteus_spot.tasks.market.purchases.fence import Superseded
from proteus_spot.tasks.market.purchases.sending import PurchaseBlocked
from proteus_spot.tasks.market.reaping import enter
from proteus_spot.tasks.supervision.stop_answer import stop_job
from proteus_spot.tasks.sweeps.running.sweep_opening import has_finished
from tests.support.copied_databases import on_a_copy
from tests.support.market_bill import bill_of, by_second
from tests.support.sweep_world import SweepWorld, loss, sweep_spec
from tests.support.task_runtime import BEGIN_S, plain

Make = Callable[..., SweepWorld]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    made: list[SweepWorld] = []

    def make_one(taken_after_s: int | None = None, traces: TraceSet | None = None) -> SweepWorld:
        made.append(SweepWorld(tmp_path, monkeypatch, taken_after_s, traces))
        return made[-1]

    yield make_one
    for world in made:
        world.close()


def _dies_after(launch: Callable[[LaunchRequest], object]) -> Callable[[LaunchRequest], object]:
    """A launch after which this process dies, before it has written anything."""

    def launch_and_die(request: LaunchRequest) -> object:
        launch(request)
        raise KeyboardInterrupt

    return launch_and_die


def _dies(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_a_whole_sweep(make: Make) -> None:
    world = make()
    world.begin_sweep(sweep_spec())
    figures = world.to_the_end()
    assert (figures["state"], figures["why"]) == ("finished", "")
    assert [trial["state"] for trial in figures["trials"]] == ["finished"] * 4
    assert [trial["steps"] for trial in figures["trials"]] == [20] * 4
    assert figures["best"] == {"params": {"rate": 4}, "value": loss(4, 20), "steps": 20}
    assert figures["ledger_usd"] > 0
    best = world.runtime.blobs.manifest(SweepPaths("sweep").best)
    assert best is not None
    assert (best.about["params"], best.about["state_step"]) == ({"rate": 4}, 20)
    assert world.job.state is JobState.FINISHED


def test_a_sweep_from_a_backup_goes_on_and_the_other_head_stops(make: Make, tmp_path: Path) -> None:
    world = make()
    world.begin_sweep(sweep_spec(parallel=1))
    first, backup = world.runtime, on_a_copy(world.runtime, tmp_path / "copy.db")
    for _ in range(5):
        world.tick_job("sweep")
        world.advance(120)
    bought = len(world.market.log())
    assert bought > 0, "since the backup"
    world.runtime, world.store = backup, backup.store
    assert world.to_the_end()["state"] == "finished"
    assert world.store.purchases.spent("sweep") == sum(bill_of(world.market, by_second, by_second).values())
    own = backup.store.owner.identity().generation_of_orders
    assert own.startswith("g2-")
    assert all(fact.order_id.startswith(f"sweep-{own}-t") for fact in world.market.log()[bought:])
    assert len(world.market.log()) > bought
    bought = len(world.market.log())
    world.runtime, world.store = first, first.store
    with pytest.raises(Superseded, match=r"^job sweep: another copy of this state database, on .*, has it"):
        world.tick_job("sweep")
    assert len(world.market.log()) == bought
    backup.store.close()


def test_machines_that_are_taken_cost_nothing_and_no_step_up_to_a_saved_one_is_trained_again(make: Make) -> None:
    world = make(taken_after_s=600)
    world.begin_sweep(sweep_spec())
    figures = world.to_the_end()
    assert figures["state"] == "finished"
    assert figures["evictions"] >= 1
    assert figures["refunded_usd"] > 0
    assert sum(trial["evictions"] for trial in figures["trials"]) == figures["evictions"]
    for number in range(4):
        orders = sorted(order for order in world.trained.steps if f"-t{number}-" in order)
        steps = [step for order in orders for step in world.trained.steps[order]]
        assert steps == list(range(1, 21)), "notices left time to save"
    assert [trial["repeated_steps"] for trial in figures["trials"]] == [0] * 4


def test_the_tick_that_finds_a_machine_gone_buys_the_next_one(make: Make) -> None:
    world = make()
    world.begin_sweep(sweep_spec(parallel=1, space={"rate": {"choice": [1]}}))
    world.tick_job("sweep")
    world.advance(300)
    world.tick_job("sweep")
    (fact,) = world.sweep_facts()
    world.market.terminate([fact.instance_id])
    world.advance(120)
    world.tick_job("sweep")
    assert len(world.sweep_facts()) == 2


def test_the_events_of_the_journal_replayed_give_the_same_orders_and_states(make: Make) -> None:
    world = make(taken_after_s=600)
    world.begin_sweep(sweep_spec(stop="earlycurve", theta=0.5, mcnt=2))
    world.to_the_end()
    entries = world.store.journals.entries("sweep")
    engine, ordered = replay([]), []
    for entry in entries:
        if entry.direction == "event":
            event = from_record(entry.record)
            assert isinstance(event, BidEvent)
            ordered += [to_record(order) for order in engine.handle(event)]
    assert ordered == [entry.record for entry in entries if entry.direction == "order"]
    assert [trial.state for trial in engine.sweep.trials.values()] == [
        t.state for t in world.engine.sweep.trials.values()
    ]
    states = [trial["state"] for trial in world.figures["trials"]]
    assert states.count("stopped_early") == 2


def test_a_tick_that_dies_at_a_purchase_buys_no_second_machine(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make()
    world.begin_sweep(sweep_spec(parallel=1, space={"rate": {"choice": [1]}}, max_trial_steps=5))
    with monkeypatch.context() as patch:
        patch.setattr(world.market, "launch", _dies_after(world.market.launch))
        with pytest.raises(KeyboardInterrupt):
            world.tick_job("sweep")
    world.clock.at_s += 120
    world.store.claims.release_all()  # the claim of the dead one has expired
    world.tick_job("sweep")
    assert len(world.sweep_facts()) == 1
    assert [intent.state for intent in world.store.purchases.intents("sweep")] == [IntentState.DONE]
    assert world.to_the_end()["state"] == "finished"


def test_a_late_report_of_a_machine_that_is_gone_changes_nothing(make: Make) -> None:
    world = make()
    world.begin_sweep(sweep_spec(parallel=1, space={"rate": {"choice": [1]}}))
    world.tick_job("sweep")
    world.advance(600)
    (fact,) = world.sweep_facts()
    late = replace(world.machines[fact.order_id].report, ended="failed", why="late")  # type: ignore[arg-type,type-var]
    world.market.terminate([fact.instance_id])
    for _ in range(3):
        world.tick_job("sweep")
        world.advance(120)
    world.runtime.blobs.write_json(TrialPaths("sweep", 0).report(fact.order_id), late.to_json())
    figures = world.to_the_end()
    assert [trial["state"] for trial in figures["trials"]] == ["finished"]
    assert figures["trials"][0]["steps"] == 20


def test_a_sampler_that_fails_in_mid_sweep_leaves_it_the_trials_that_it_has(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(optuna.samplers.RandomSampler):
        def sample_independent(self, study: Any, trial: Any, param_name: str, param_distribution: Any) -> Any:
            if trial.number >= 2:
                raise RuntimeError("no\nluck")
            return super().sample_independent(study, trial, param_name, param_distribution)

    world = make()
    monkeypatch.setattr(optuna.samplers, "TPESampler", lambda seed, constant_liar: Broken(seed))
    world.begin_sweep(sweep_spec(sampler="TPESampler", trials=4, parallel=2, stop="earlycurve", mcnt=1))
    figures = world.to_the_end()
    why = "only 2 of 4 trials were proposed: sampler TPESampler: RuntimeError('no\\nluck')"
    assert (figures["state"], figures["why"], world.job.state) == ("finished", why, JobState.FINISHED)
    assert sorted(trial["state"] for trial in figures["trials"]) == ["finished", "stopped_early"]
    assert caplog.text.count("goes on with its 2 trials") == 1


def test_what_is_no_report_is_left_out(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    world = make()
    world.begin_sweep(sweep_spec(parallel=1, space={"rate": {"choice": [1]}}))
    world.tick_job("sweep")
    world.advance(300)
    (fact,) = world.sweep_facts()
    world.runtime.blobs.write_json(TrialPaths("sweep", 0).report(fact.order_id), {"values": "none"})
    world.tick_job("sweep")
    assert "its report is read again by the next tick" in caplog.text
    assert world.to_the_end()["state"] == "finished"


def test_the_budget_is_never_passed_and_ends_the_sweep_with_the_best_so_far(make: Make) -> None:
    world = make()
    spec = sweep_spec(budget_usd=0.12, max_trial_steps=200)
    world.begin_sweep(spec)
    for _ in range(100):
        if world.job.state.terminal:
            break
        world.tick_job("sweep")
        world.advance(120)
        assert world.store.purchases.spent("sweep") <= spec.budget_micros  # type: ignore[operator]
    figures = world.to_the_end()
    assert (figures["state"], figures["why"]) == ("stopped", "budget")
    assert 0 < figures["ledger_usd"] <= 0.12
    assert {trial["state"] for trial in figures["trials"]} <= {"paused", "waiting"}
    assert figures["best"] is not None


def all_begin(world: SweepWorld) -> None:
    """Tick until all trials are on machines: the first one trains a step before the others begin."""
    world.tick_job("sweep")
    world.advance(180)
    world.tick_job("sweep")


def test_trials_that_cannot_work_cost_three_machines_and_the_sweep_ends_with_their_line(make: Make) -> None:
    world = make()
    world.falsify = lambda order, report: replace(
        report, values=(), saved_step=None, step_s=None, ended="failed", why="ModuleNotFoundError: No module named 'x'"
    )
    world.begin_sweep(sweep_spec())
    figures = world.to_the_end()
    assert len(world.store.purchases.allocations("sweep")) == 3
    assert figures["state"] == "failed"
    assert figures["why"] == "3 tries failed alike before the first step: ModuleNotFoundError: No module named 'x'"
    assert figures["best"] is None
    assert world.job.failure == figures["why"]


def test_a_stop_saves_every_trial_and_the_same_id_goes_on(make: Make) -> None:
    world = make()
    spec = sweep_spec()
    world.begin_sweep(spec)
    all_begin(world)
    world.advance(600)
    request_stop("sweep", "enough")
    figures = world.to_the_end()
    assert (figures["state"], figures["why"]) == ("stopped", "stop")
    assert {trial["state"] for trial in figures["trials"]} == {"paused"}
    saved = [trial.saved_step for trial in world.engine.sweep.trials.values()]
    assert min(saved) > 0
    assert not world.store.purchases.allocations("sweep", alive=True)
    world.begin_sweep(spec)
    assert world.job.state is JobState.STARTING
    again = world.to_the_end()
    assert again["state"] == "finished"
    assert [trial["repeated_steps"] for trial in again["trials"]] == [0] * 4


def test_a_stop_at_once_ends_the_machines_at_the_next_tick(make: Make) -> None:
    world = make()
    world.begin_sweep(sweep_spec())
    world.tick_job("sweep")
    world.advance(600)
    request_stop("sweep", "enough", now=True)
    world.tick_job("sweep")
    assert not [fact for fact in world.sweep_facts() if fact.alive]
    assert world.to_the_end()["state"] == "stopped"
    load_settings.cache_clear()


def test_a_deadline_without_slack_goes_on_on_demand(make: Make) -> None:
    world = make(taken_after_s=600)
    world.begin_sweep(sweep_spec(deadline="29m"))
    figures = world.to_the_end()
    assert figures["state"] == "finished"
    bids = [record.allocation.bid_micros for record in world.store.purchases.allocations("sweep")]
    assert bids[0] is not None
    assert None in bids, "after the eviction"


def test_a_tick_that_dies_while_it_closes_the_sweep_is_mended_by_the_next(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make()
    world.begin_sweep(sweep_spec(max_trial_steps=4))
    world.tick_job("sweep")
    assert world.job.state is JobState.RUNNING
    world.advance(300)
    with monkeypatch.context() as patch:
        patch.setattr(JobTables, "move_job", _dies)
        with pytest.raises(KeyboardInterrupt):
            world.to_the_end()
    assert (world.engine.sweep.closed, world.job.state) == (True, JobState.RUNNING)
    world.store.claims.release_all()  # the claim of the dead one has expired
    world.tick_job("sweep")
    assert world.job.state is JobState.FINISHED


def test_of_two_ticks_at_once_one_decides(make: Make) -> None:
    world = make()
    world.begin_sweep(sweep_spec())
    world.store.claims.claim("tick/sweep", "another", 60.0)
    assert world.tick_job("sweep") == "skipped: another tick of this job is running"
    assert world.sweep_facts() == []


def test_a_market_that_says_no_price_buys_nothing_and_goes_on(make: Make) -> None:
    world = make()
    world.begin_sweep(sweep_spec())
    world.market.add_fault(Fault(FaultKind.UNAVAILABLE, operation="price_history", until_s=BEGIN_S + 60))
    world.tick_job("sweep")
    assert world.sweep_facts() == []
    assert world.to_the_end()["state"] == "finished"


def test_a_machine_whose_purchase_was_lost_is_entered_by_the_reaper(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make()
    world.begin_sweep(sweep_spec(parallel=1))
    with monkeypatch.context() as patch:
        patch.setattr(world.market, "launch", _dies_after(world.market.launch))
        with pytest.raises(KeyboardInterrupt):
            world.tick_job("sweep")
    assert not world.store.purchases.allocations("sweep")
    world.clock.at_s += 120
    plain(enter)("sweep")
    (record,) = world.store.purchases.allocations("sweep", alive=True)
    assert record.order_id == "sweep-t0-0"
    assert world.engine.sweep.deployments["sweep-t0-0"].works


def test_stop_names_the_machines_of_a_sweep_and_ends_them_at_once_where_asked(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make()
    monkeypatch.setenv("PROTEUS_DATABASE_URL", world.runtime.settings.database_url)
    load_settings.cache_clear()
    world.begin_sweep(sweep_spec())
    all_begin(world)
    world.advance(300)
    answer = stop_job("sweep", "enough")
    assert (answer.state, answer.why, len(answer.stays)) == ("stopping", "enough", 4)
    assert {machine.why for machine in answer.stays} == {"its trial saves its state first"}
    assert "has its trials save their states" in answer.next[0]
    at_once = stop_job("sweep", "enough", at_once=True)
    assert (len(at_once.ended), at_once.stays) == (4, [])
    assert world.to_the_end()["state"] == "stopped"
    load_settings.cache_clear()


def test_a_finished_sweep_gets_more_trials_under_the_same_id(make: Make) -> None:
    world = make()
    fields = {"sampler": "random", "space": {"rate": {"int": [1, 9]}}}
    world.begin_sweep(sweep_spec(**fields, trials=2))
    assert world.to_the_end()["state"] == "finished"
    machines = len(world.store.purchases.allocations("sweep"))
    more = sweep_spec(**fields, trials=3)
    url = world.runtime.settings.database_url
    asked = begun_before(url, "sweep", more.model_dump(mode="json"), more.extends_recorded)
    assert asked is JobStatus.PAUSED
    world.begin_sweep(more)
    assert world.job.state is JobState.STARTING
    assert not plain(has_finished)("sweep")
    figures = world.to_the_end()
    assert [trial["state"] for trial in figures["trials"]] == ["finished"] * 3
    assert len(world.store.purchases.allocations("sweep")) == machines + 1
    assert plain(has_finished)("sweep")
    for change in ({"trials": 2}, {"trials": 4, "max_trial_steps": 9}):
        spec = sweep_spec(**{**fields, **change})
        with pytest.raises(StoreError):
            world.begin_sweep(spec)
        with pytest.raises(InputError, match="sweep sweep: was begun before with other options"):
            begun_before(url, "sweep", spec.model_dump(mode="json"), spec.extends_recorded)


def test_a_sweep_that_its_budget_has_stopped_goes_on_under_its_id_with_a_larger_one(make: Make) -> None:
    world = make()
    fields = {"max_trial_steps": 200, "deadline": "20h"}
    world.begin_sweep(sweep_spec(**fields, budget_usd=0.12))
    figures = world.to_the_end()
    assert (figures["state"], figures["why"]) == ("stopped", "budget")
    steps = sum(trial["steps"] for trial in figures["trials"])
    assert 0 < steps < 800
    assert figures["ledger_usd"] <= 0.12
    assert how_it_goes_on(world.job) == "sweep sweep was stopped: budget; submit it with a larger budget_usd"
    larger = sweep_spec(**fields | {"budget_usd": 2, "deadline": "30h"})
    url = world.runtime.settings.database_url
    asked = begun_before(url, "sweep", larger.model_dump(mode="json"), larger.extends_recorded)
    assert asked is JobStatus.PAUSED
    for change in ({"budget_usd": 0.04}, {"budget_usd": 1, "deadline": "2h"}, {"budget_usd": 1, "max_trial_steps": 9}):
        with pytest.raises(StoreError):
            world.begin_sweep(sweep_spec(**{**fields, **change}))
    world.begin_sweep(larger)
    figures = world.to_the_end(most_ticks=500)
    assert (figures["state"], [trial["steps"] for trial in figures["trials"]]) == ("finished", [200] * 4)
    assert 0.12 < figures["ledger_usd"] <= 2
    assert how_it_goes_on(world.job) == ""


def test_where_no_lease_can_be_written_nothing_is_bought_and_the_tick_fails(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make()
    world.begin_sweep(sweep_spec())
    write = Blobs.write_json

    def refuse(blobs: Blobs, name: str, value: Any) -> None:
        if "lease" in name:
            raise BlobError(f"{name}: AccessDenied")
        write(blobs, name, value)

    with monkeypatch.context() as patch:
        patch.setattr(Blobs, "write_json", refuse)
        for _ in range(5):
            with pytest.raises(PurchaseBlocked, match="sweep: leases cannot be written, so nothing is bought"):
                world.tick_job("sweep")
            world.advance(120)
        assert world.sweep_facts() == []
    assert world.to_the_end()["state"] == "finished"


def test_without_a_bucket_a_tick_books_what_runs_and_buys_nothing(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make()
    world.begin_sweep(sweep_spec())
    all_begin(world)

    def fail(blobs: Blobs, *_: Any) -> None:
        raise BlobError("the bucket is away")

    bought = len(world.sweep_facts())
    with monkeypatch.context() as patch:
        for name in ("read_bytes", "write_bytes", "exists", "list"):
            patch.setattr(Blobs, name, fail)
        world.market.terminate([world.sweep_facts()[0].instance_id])
        for _ in range(5):
            world.clock.at_s += 1200
            with pytest.raises(PurchaseBlocked, match="leases cannot be written, so nothing is bought"):
                world.tick_job("sweep")
    assert len(world.sweep_facts()) == bought
    living = {fact.instance_id for fact in world.sweep_facts() if fact.alive}
    assert {
        name for record in world.store.purchases.allocations("sweep", alive=True) for name in record.living_ids
    } == living
    assert world.store.purchases.spent("sweep") > 0
    assert world.to_the_end()["state"] == "finished"
