"""Recorded trials made up from a seed: curves of formula (4), for tests, and where no application was recorded."""

import numpy as np

from proteus_spot.benchmarks.papers.sweeps.simulation.record import RecordedTrials
from proteus_spot.bidding.tuning.sweep_plan import Direction

#: Relative noise of a generated value.
_NOISE = 0.002
#: Share of generated trials whose learning rate changes, so that their curves have a second stage.
_STAGED = 0.4


def generate_trials(
    seed: int, trials: int = 16, steps: int = 200, *, step_s: float = 60.0, state_bytes: int = 50_000_000
) -> RecordedTrials:
    """Return a record of generated trials; the same arguments give the same record.

    Parameters
    ----------
    step_s : median seconds of a step on 2 vCPUs; trials differ by a factor of up to about 2.

    Notes
    -----
    m(k) = 1 / (a0 k² + a1 k + a2) + a3, with all coefficients at least 0, and noise; in two fifths of the trials a
    second such stage begins on a lower level after 20 to 60 % of the steps. Nine tenths of a step are divided by the
    vCPUs.

    Source: SpotTune, formulas (4) to (6).
    """
    rng = np.random.default_rng(seed)
    numbers = np.arange(1, steps + 1, dtype=np.float64)
    values = np.empty((trials, steps))
    for trial in range(trials):
        begins = rng.uniform(1.0, 3.0)
        level = rng.uniform(0.1, 0.9)
        curve = _stage(rng, numbers, begins, level)
        if rng.random() < _STAGED:
            turn = int(steps * rng.uniform(0.2, 0.6))
            after = _stage(rng, numbers[: steps - turn], 0.45 * float(curve[turn]), level * rng.uniform(0.2, 0.4))
            curve[turn:] = after
        values[trial] = curve * (1 + _NOISE * rng.standard_normal(steps))
    factors = np.exp(rng.normal(0.0, 0.3, trials))
    serial = 0.1
    vcpus = np.array([2, 16], dtype=np.int64)
    seconds = step_s * factors[:, None] * (serial + (1 - serial) * 2 / vcpus[None, :])
    return RecordedTrials(
        application=f"generated-{seed}",
        metric="loss",
        direction=Direction.MINIMIZE,
        settings=tuple({"trial": trial} for trial in range(trials)),
        values=values,
        vcpus=vcpus,
        step_s=seconds,
        step_cov=np.full((trials, 2), 0.05),
        state_bytes=np.full(trials, state_bytes, dtype=np.int64),
        upload_s=np.full(trials, 5.0),
        restore_s=np.full(trials, 5.0),
        seed=seed,
    )


def _stage(rng: np.random.Generator, numbers: np.ndarray, begins: float, level: float) -> np.ndarray:
    """Return a stage that falls from `begins` towards `level`."""
    a2 = 1 / max(begins - level, 1e-3)
    a1 = a2 * rng.uniform(0.02, 0.4)
    a0 = a2 * rng.uniform(0.0, 2e-4)
    curve: np.ndarray = 1 / (a0 * numbers**2 + a1 * numbers + a2) + level
    return curve
