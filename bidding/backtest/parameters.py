"""`JobParameters`: the settings of a simulated job and its elasticity, as whole numbers."""

from dataclasses import astuple, dataclass, fields

import numpy as np

from proteus_spot.bidding.backtest.price_arrays import Records
from proteus_spot.bidding.billing.expected import BillingKind
from proteus_spot.bidding.jit import jitable
from proteus_spot.bidding.market.model import HOUR_S

#: Progress is counted in millionths of a vCPU-second, so that it is a whole number.
PPM = 1_000_000


@dataclass(frozen=True, slots=True)
class JobParameters:
    """The settings of a job, all whole numbers; the defaults are the paper's, on AgileML.

    Attributes
    ----------
    work_vcpu_s : work to be done.
    window_s : seconds after which an unfinished job is given up.
    tick_s, renewal_lead_s : seconds between decisions; seconds before an hour's end from which its renewal is decided.
    allocation_vcpus, max_spot_vcpus : size of one allocation, and of all together.
    reliable_count, reliable_vcpus, reliable_micros : on-demand machines held throughout; vCPUs and hourly price of one.
    reliable_works : 1 if they compute, 0 if they only serve.
    resize_overhead_s, eviction_overhead_s : σ and λ, during which the whole footprint makes no progress.
    efficiency_ppm : φ, or the share of time that checkpointing leaves, in millionths.
    checkpoint_s : seconds between checkpoints; an eviction loses the work since the last one; 0: nothing is lost.
    restart_s : with checkpoints, seconds without progress after a loss.
    patient : 1 if nothing is bought after an eviction that would only stand still: the next purchase comes λ - σ later.
    ceiling : 1 if no bid is made in a market that stands above its own on-demand price, 0 if one may be.
    billing : how spot machines are charged, a `BillingKind`; the next four are those of `bidding.billing`'s models.
    reprices, minimum_s : of PER_SECOND: 1 if each second is paid at its own price; least seconds of the first hour.
    flat_micros, max_life_s : of FLAT: cost of an instance-hour; seconds after which every machine is taken, 0: never.
    """

    work_vcpu_s: int
    window_s: int
    tick_s: int = 120
    renewal_lead_s: int = 240
    allocation_vcpus: int = 128
    max_spot_vcpus: int = 756
    reliable_count: int = 3
    reliable_vcpus: int = 4
    reliable_micros: int = 0
    reliable_works: int = 0
    resize_overhead_s: int = 20
    eviction_overhead_s: int = 60
    efficiency_ppm: int = PPM
    checkpoint_s: int = 0
    restart_s: int = 0
    patient: int = 0
    ceiling: int = 1
    billing: int = int(BillingKind.HOURLY_REFUND)
    reprices: int = 0
    minimum_s: int = 60
    flat_micros: int = 0
    max_life_s: int = 0

    def __post_init__(self) -> None:
        if min(astuple(self)) < 0:
            raise ValueError(f"a setting cannot be negative: {self}")
        if not (self.work_vcpu_s and self.window_s and self.tick_s):
            raise ValueError("work, window and the time between ticks must be above 0")
        if not 0 < self.efficiency_ppm <= PPM:
            raise ValueError(f"efficiency_ppm is {self.efficiency_ppm}: it must be in (0, {PPM}]")
        if not 0 < self.renewal_lead_s < HOUR_S:
            raise ValueError(f"renewal_lead_s is {self.renewal_lead_s}: it must lie within the hour")
        if self.minimum_s > HOUR_S:
            raise ValueError(f"minimum_s is {self.minimum_s}: it must be at most {HOUR_S}")
        BillingKind(self.billing)

    def record(self) -> Records:
        """Return the settings as the record that the compiled loop reads."""
        return np.array([astuple(self)], dtype=SETTING)


SETTING = np.dtype([(field.name, np.int64) for field in fields(JobParameters)], align=True)


@jitable
def expected_overhead_s(eviction_overhead_s: float, checkpoint_s: float, restart_s: float) -> float:
    """Return λ: the seconds that an eviction is expected to cost the whole footprint.

    With checkpoints it is the restart and half an interval, because the work since the last checkpoint is lost and an
    eviction is as likely in each of the interval's seconds.

    Notes
    -----
    Source: Proteus (EuroSys 2017), Table 2; the paper gives no λ of checkpointing.
    """
    if checkpoint_s == 0:
        return float(eviction_overhead_s)
    return float(max(eviction_overhead_s, restart_s)) + checkpoint_s / 2.0


def window_s(hours: int) -> int:
    """Return the maximum run time of a job of `hours` on the reference cluster: 3.5 times `hours`, and 2 h."""
    return 7 * hours * HOUR_S // 2 + 2 * HOUR_S
