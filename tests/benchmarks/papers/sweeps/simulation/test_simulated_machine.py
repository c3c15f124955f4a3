"""One trial on one machine: steps, checkpoints, notices, pauses and ends, calculated by hand."""

from math import ceil
from typing import Any

import pytest

from proteus_spot.benchmarks.papers.sweeps.simulation.simulated_machine import MachineTimes, SimulatedMachine
from proteus_spot.bidding.market.model import Allocation, EndCause, Market

TIMES = MachineTimes(boot_s=60.0, notice_s=120, checkpoint_s=300.0)


def machine(**changes: Any) -> SimulatedMachine:
    """Return a machine launched at 1000 that makes steps 11 to 40 of 100 s each; its first begins at 1070."""
    fields: dict[str, Any] = {
        "allocation": Allocation("o", Market("m", "a"), 1, 1000, bid_micros=5),
        "trial": 0,
        "from_step": 10,
        "until_step": 40,
        "step_s": 100.0,
        "restore_s": 10.0,
        "upload_s": 20.0,
        "takes_s": None,
        "times": TIMES,
    }
    return SimulatedMachine(**fields | changes)


def test_a_trial_runs_to_its_target_and_ends_its_machine() -> None:
    run = machine()
    assert [run.step_at(at_s) for at_s in (1000, 1169, 1170, 4069, 4070, 9999)] == [10, 10, 11, 39, 40, 40]
    assert run.done_s == 4090
    assert run.end == (4090, EndCause.USER)
    # Uploads begin every 300 s, with the state of the last step: that of 1970 (step 19) is there at 1990.
    assert [run.saved_at(at_s) for at_s in (1389, 1390, 1989, 1990, 4089, 4090)] == [None, 13, 16, 19, 37, 40]
    assert not run.has_reported_end(4089)
    assert run.has_reported_end(4090)
    assert [run.next_change_s(at_s) for at_s in (1000, 4070, 4090)] == [4070, 4090, float("inf")]


def test_steps_that_take_no_time_are_done_when_the_machine_begins() -> None:
    ours = machine(step_s=1e-10, upload_s=0.0)
    assert ours.step_at(ours.starts_s - 1) == ours.from_step
    assert ours.step_at(ours.starts_s) == ours.until_step
    assert ours.has_reported_end(ceil(ours.starts_s))
    assert ours.saved_at(ceil(ours.starts_s)) == ours.until_step


def test_at_a_notice_the_state_as_it_is_then_is_saved_and_the_machine_waits_for_its_end() -> None:
    run = machine(takes_s=2000)
    assert run.notice_s == 1880
    assert run.step_at(2500) == 18  # by 1880: 8.1 steps
    assert run.done_s == 1900
    assert [run.saved_at(at_s) for at_s in (1899, 1900, 9999)] == [16, 18, 18]
    assert run.has_reported_end(1900)
    assert run.end == (2000, EndCause.EVICTED)
    assert [run.next_change_s(at_s) for at_s in (1000, 1880, 1900)] == [1880, 1900, 2000]


def test_a_checkpoint_that_does_not_fit_the_notice_is_lost_but_for_the_periodic_one() -> None:
    run = machine(takes_s=3600, upload_s=125.0)
    # An upload of 125 s may begin every 1250 s: the first at 2320, there at 2445, with step 22.
    assert [run.saved_at(at_s) for at_s in (2444, 2445, 9999)] == [None, 22, 22]
    assert run.step_at(9999) == 34
    assert not run.has_reported_end(9999)


@pytest.mark.parametrize(("takes_s", "saved"), [(1100, None), (1001, None), (1289, None), (1290, 11)])
def test_an_early_eviction_saves_what_is_done_at_its_notice(takes_s: int, saved: int | None) -> None:
    run = machine(takes_s=takes_s)
    assert run.saved_at(9999) == saved
    assert run.end == (takes_s, EndCause.EVICTED)


def test_without_notice_the_periodic_state_is_what_is_left() -> None:
    run = machine(takes_s=2060, times=MachineTimes(boot_s=60.0, notice_s=0, checkpoint_s=300.0))
    assert run.step_at(9999) == 19
    assert run.saved_at(9999) == 19
    assert machine(takes_s=1985, times=run.times).saved_at(9999) == 16
    assert not run.has_reported_end(9999)


def test_a_pause_lets_the_step_in_progress_end() -> None:
    run = machine()
    run.pause(2000)
    run.pause(3000)  # a repeated order changes nothing
    assert run.step_at(9999) == 20  # at 2070
    assert run.end == (2090, EndCause.USER)
    assert run.saved_at(2090) == 20
    early = machine(from_step=0)
    early.pause(1010)
    assert early.step_at(9999) == 0
    assert early.saved_at(9999) is None
    late = machine()
    late.pause(4080)
    assert late.step_at(9999) == 40
    assert late.end == (4100, EndCause.USER)


def test_a_release_ends_the_machine_at_once_and_an_eviction_of_that_second_goes_first() -> None:
    run = machine(takes_s=2000)
    run.release(1995)
    assert run.end == (1995, EndCause.USER)
    same = machine(takes_s=2000)
    same.release(2000)
    assert same.end == (2000, EndCause.EVICTED)
    before = machine()
    before.release(1985)
    assert before.saved_at(9999) == 16
    assert before.step_at(9999) == 19


def test_times_are_checked() -> None:
    with pytest.raises(ValueError, match="cannot be negative"):
        MachineTimes(boot_s=-1)
    with pytest.raises(ValueError, match="period"):
        MachineTimes(checkpoint_s=0)
