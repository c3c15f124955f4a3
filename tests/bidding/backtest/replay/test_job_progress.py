"""How far a job is: stops that overlap, checkpoints, and what a loss leaves. (Whole jobs are in tests/parity.)"""

from proteus_spot.bidding.backtest.parameters import PPM, JobParameters
from proteus_spot.bidding.backtest.replay.engine_replay import JobProgress

PLAIN = JobParameters(work_vcpu_s=16_000, window_s=36_000, resize_overhead_s=20, eviction_overhead_s=60)
SAVING = JobParameters(
    work_vcpu_s=16_000,
    window_s=36_000,
    resize_overhead_s=0,
    eviction_overhead_s=0,
    efficiency_ppm=830_000,
    checkpoint_s=600,
    restart_s=300,
)


def test_work_is_done_to_the_second_behind_the_stops_and_never_without_machines() -> None:
    progress = JobProgress(PLAIN, 0)
    assert progress.done_s(0, 0) is None
    progress.bought(0, first=True)
    assert progress.done_s(16, 0) == 20 + 1000
    progress.advance(16, 0, 120)
    assert progress.work == 16 * 100 * PPM
    assert progress.done_s(16, 120) == 120 + 900
    assert progress.done_s(7, 120) == 120 + -(-16 * 900 // 7)


def test_stops_overlap_and_nothing_is_lost_without_checkpoints() -> None:
    progress = JobProgress(PLAIN, 0)
    progress.advance(16, 0, 100)
    progress.evicted(100, machines_left=False)
    progress.bought(110, first=True)
    assert (progress.stalled_s, progress.work, progress.checkpoint_s) == (160, 1600 * PPM, None)
    progress.resized(150)
    assert progress.stalled_s == 170


def test_an_eviction_leaves_the_last_checkpoint_and_all_that_is_left_restarts() -> None:
    progress = JobProgress(SAVING, 0)
    progress.bought(0, first=True)
    assert progress.checkpoint_s == 600
    progress.advance(10, 0, 600)
    progress.advance(10, 600, 700)
    progress.evicted(700, machines_left=True)
    assert progress.work == progress.saved == 10 * 600 * 830_000
    assert (progress.stalled_s, progress.checkpoint_s, progress.restarts) == (1000, 1600, False)


def test_who_lost_all_restarts_with_the_next_machines_and_only_once() -> None:
    progress = JobProgress(SAVING, 0)
    progress.bought(0, first=True)
    progress.evicted(100, machines_left=False)
    assert (progress.stalled_s, progress.checkpoint_s, progress.restarts) == (400, None, True)
    progress.bought(240, first=True)
    assert (progress.stalled_s, progress.checkpoint_s, progress.restarts) == (540, 1140, False)
    progress.bought(720, first=True)
    assert (progress.stalled_s, progress.checkpoint_s) == (720, 1320)


def test_a_change_that_stops_the_job_saves_its_state() -> None:
    progress = JobProgress(JobParameters(work_vcpu_s=1, window_s=1, resize_overhead_s=20, checkpoint_s=600), 0)
    progress.bought(0, first=True)
    progress.advance(10, 0, 120)
    progress.bought(120, first=False)
    assert (progress.saved, progress.checkpoint_s) == (10 * 100 * PPM, 140 + 600)
    unstopped = JobProgress(SAVING, 0)
    unstopped.bought(0, first=True)
    unstopped.advance(10, 0, 120)
    unstopped.resized(120)
    assert (unstopped.saved, unstopped.checkpoint_s) == (0, 600)
