"""Generated capacity: how many spot machines each market has over time, which comes in steps and goes in bursts.

Of the H100 spot machines that thirteen zones were asked for in October 2025, all were there in 38 % of the answers,
none in 30 %, and part of them in the rest. So a market here is plentiful, short or empty for a while; short ones gain
and lose single machines, and now and then a burst takes a large part at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from proteus_spot.bidding.market.model import MINUTE_S, Market
from proteus_spot.bidding.market.traces import Int64s, Trace, TraceSet


@dataclass(frozen=True, slots=True)
class CapacityClimate:
    """Parameters of generated capacity.

    Attributes
    ----------
    most : machines of a plentiful market.
    step_s : seconds between two changes.
    gain, loss : probability that a market gains a machine, or loses one, in a step.
    burst_every_s : mean seconds between two bursts of a market.
    burst_share : least and greatest share of its machines that a burst takes.
    empty_s : mean seconds for which an emptied market stays so.
    """

    most: int = 4
    step_s: int = 2 * MINUTE_S
    gain: float = 0.35
    loss: float = 0.04
    burst_every_s: float = 50.0 * MINUTE_S
    burst_share: tuple[float, float] = (0.5, 1.0)
    empty_s: float = 10.0 * MINUTE_S


#: For `proteus run --rules today`: in nearly any hour something is lost, and within minutes there is something again.
RESTLESS = CapacityClimate()
#: The first burst of a run, in seconds from its start: when a job has grown.
_FIRST_BURST_S = (20 * MINUTE_S, 30 * MINUTE_S)


def generate_capacity(
    markets: Sequence[Market], start_s: int, until_s: int, rng: np.random.Generator, climate: CapacityClimate = RESTLESS
) -> TraceSet:
    """Return the machines of each market from `start_s` to `until_s`, as the "prices" of traces.

    At first a single market has one machine, and others gain theirs step by step. The first burst takes machines of all
    markets; later each has its own.
    """
    steps = max(-(-(until_s - start_s) // climate.step_s), 1)
    times_s = start_s + climate.step_s * np.arange(steps, dtype=np.int64)
    first = int(rng.uniform(*_FIRST_BURST_S)) // climate.step_s
    ordered = sorted(markets)
    lucky = int(rng.integers(len(ordered)))
    return TraceSet(
        {
            market: Trace(times_s, _counts(int(index == lucky), steps, first, rng, climate))
            for index, market in enumerate(ordered)
        }
    )


def _counts(begins: int, steps: int, first: int, rng: np.random.Generator, climate: CapacityClimate) -> Int64s:
    counts = np.empty(steps, dtype=np.int64)
    count, empty_until = begins, 2  # nobody gains anything in the first steps: the job finds one machine
    for step in range(steps):
        is_burst = step == first or (step > first and rng.random() < climate.step_s / climate.burst_every_s)
        if is_burst:
            taken = int(np.ceil(count * rng.uniform(*climate.burst_share)))
            count -= taken
            if not count:
                empty_until = step + 1 + int(rng.exponential(climate.empty_s) // climate.step_s)
        elif step >= empty_until:
            count += int(rng.random() < climate.gain) - int(rng.random() < climate.loss)
        count = min(max(count, 0), climate.most)
        counts[step] = count
    return counts
