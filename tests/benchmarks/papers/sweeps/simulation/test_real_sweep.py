"""A finished sweep fed to the simulation gives the same states and the same best trial."""

from dataclasses import replace

import pytest

from proteus_spot.benchmarks.papers.sweeps.simulation.real_sweep import simulate_real
from proteus_spot.benchmarks.papers.sweeps.simulation.simulated_machine import MachineTimes
from proteus_spot.bidding.engine.events import BidEvent
from proteus_spot.bidding.tuning.sweep_events import SweepTick, TrialReported
from proteus_spot.bidding.tuning.sweep_journal import from_record, to_record
from tests.benchmarks.papers.sweeps.simulation.test_simulate import rough_sweep


def journal_of(seed: int) -> list[BidEvent]:
    """Return the journal of a sweep, read back from its records, whose ticks and steps are not even.

    Ticks come up to 25 s late, and each measured step time is wrong by up to 5 %.
    """
    sim, _ = rough_sweep(seed, every_tick=True, refused_share=0.0)
    journal: list[BidEvent] = []
    sim.run(86_400, seed, journal)
    uneven = []
    for number, event in enumerate(journal):
        if isinstance(event, SweepTick):
            event = replace(event, at_s=event.at_s + 7 * number % 25)
        if isinstance(event, TrialReported) and event.step_s is not None:
            event = replace(event, step_s=event.step_s * (0.95 + 0.1 * (number % 11) / 10))
        uneven.append(from_record(to_record(event)))
    return [event for event in uneven if isinstance(event, BidEvent)]


@pytest.mark.parametrize("seed", [1, 2, 4, 7])
def test_the_states_and_the_best_trial_are_those_of_the_journal(seed: int) -> None:
    sim, _ = rough_sweep(seed, every_tick=True, refused_share=0.0)
    real = sim.run(86_400, seed)
    again = simulate_real(journal_of(seed), sim.times)
    assert [trial.state for trial in again.trials] == [trial.state for trial in real.trials]
    assert again.best_trial == real.best_trial
    assert [trial.params for trial in again.trials] == [trial.params for trial in real.trials]
    assert again.evictions > 0 or real.evictions == 0


def test_the_journal_itself_gives_every_step_and_eviction() -> None:
    sim, _ = rough_sweep(4, every_tick=True, refused_share=0.0)
    journal: list[BidEvent] = []
    real = sim.run(86_400, 4, journal)
    again = simulate_real(journal, sim.times)
    assert [(trial.state, trial.value, trial.steps) for trial in again.trials] == [
        (trial.state, trial.value, trial.steps) for trial in real.trials
    ]
    assert again.evictions == real.evictions


def test_a_journal_without_a_sweep_is_refused() -> None:
    with pytest.raises(ValueError, match="no sweep"):
        simulate_real([], MachineTimes())
