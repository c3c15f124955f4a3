"""The stage of AgileML for a ratio of transient to reliable nodes."""

from __future__ import annotations

from dataclasses import dataclass

from proteus_spot.psengine.config import Stage


@dataclass(frozen=True)
class StageThresholds:
    """Ratios above which stages 2 and 3 hold; `hysteresis` is the relative width of the band that keeps the stage."""

    stage_2: float = 1.0
    stage_3: float = 15.0
    hysteresis: float = 0.1


def stage_for(transient: int, reliable: int, current: Stage, thresholds: StageThresholds) -> Stage:
    """Return the stage for a footprint that is in stage `current`.

    Parameters
    ----------
    transient, reliable : int
        Ready nodes of each tier. No transient node: stage 1.

    Raises
    ------
    ValueError
        Without a reliable node: no node could hold the state safely.

    Notes
    -----
    r = transient / reliable; r <= 1 stage 1, 1 < r <= 15 stage 2, r > 15 stage 3.

    Source: Proteus (EuroSys 2017), 3.2 and 3.3 (stage transitions).
    Differs: a stage is left downwards only below its threshold by `hysteresis`, so that a footprint on a threshold does
    not flap.
    """
    if reliable < 1:
        raise ValueError("no reliable node: a stage is not defined without one")
    if transient == 0:
        return 1
    ratio = transient / reliable
    up: Stage = 3 if ratio > thresholds.stage_3 else 2 if ratio > thresholds.stage_2 else 1
    if up >= current:
        return up
    keep = 1.0 - thresholds.hysteresis
    if current == 3 and ratio > thresholds.stage_3 * keep:
        return 3
    if current >= 2 and ratio > thresholds.stage_2 * keep:
        return 2
    return up
