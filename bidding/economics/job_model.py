"""`JobModel`: the application's parameters (Table 2 of the paper) and the limits of its footprint."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from types import MappingProxyType
from typing import Any

from proteus_spot.bidding.billing.expected import KINDS, BillingKind, hour_micros, is_refunded
from proteus_spot.bidding.market.model import HOUR_S, InstanceType, Market
from proteus_spot.bidding.market.money import Micros

#: What the sizes of a job may count, and its name for a reader.
UNITS: Mapping[str, str] = MappingProxyType({"vcpu": "vCPU", "gpu": "GPU"})


def size_in(unit: str, kind: InstanceType) -> int:
    """Return the size of a machine in a unit of `UNITS`; 0 for one without a GPU, where these are counted."""
    return kind.gpus if unit == "gpu" else kind.vcpu


def reference_micros(unit: str, kinds: Iterable[InstanceType]) -> dict[str, float]:
    """Return the hourly on-demand cost of a machine's size by type, at the cheapest of the types for a unit.

    A machine that has nothing of the unit costs what it costs.
    """
    kinds = list(kinds)
    each = min((kind.on_demand_micros / size for kind in kinds if (size := size_in(unit, kind))), default=0.0)
    return {kind.name: size_in(unit, kind) * each or float(kind.on_demand_micros) for kind in kinds}


@dataclass(frozen=True, slots=True)
class JobModel:
    """The parameters of a job that the economics depend on.

    Sizes, here and in the policies, count vCPUs; in a job whose `unit` is ``gpu`` they count GPUs, by the same names.

    Attributes
    ----------
    scaling_efficiency : float
        φ, in (0, 1].
    resize_overhead_s : float
        σ: seconds without progress after the footprint was changed.
    eviction_overhead_s : float
        λ: seconds without progress after an eviction.
    allocation_vcpus, max_spot_vcpus : int
        Size of one allocation, and of all together.
    renewal_lead_s : int
        A renewal is decided this long before the hour's end, or after.
    cooldown_s : int
        Seconds without a request to a market after it refused one.
    ceiling_on_demand : bool
        Whether bids are excluded in a market whose price is above its own on-demand price.
    reliable_works : bool
        Whether the reliable tier computes too (AgileML's stages 1 and 2).
    billing : str
        How spot machines are charged, by the names of `bidding.billing.SPOT_BILLING`.
    flat_micros : int
        Cost of an instance-hour under flat billing.
    tasks, task_vcpus : int
        Tasks of a clock, which cannot be divided, and the vCPUs that one keeps busy; 0 tasks: the work is divided at
        will.
    value_of_time_usd_per_h : float
        Dollars that an hour less is worth; the policy `deadline` weighs it.
    boot_s : float
        Seconds that a new machine is paid for before it works.
    gap_s : float
        Seconds until the next decision, at most.
    exclude_markets : tuple of str
        Markets in which nothing is bought, spot or on demand: a market, an instance type or a zone each.
    unit : str
        What sizes count, of `UNITS`.
    """

    scaling_efficiency: float = 1.0
    resize_overhead_s: float = 20.0
    eviction_overhead_s: float = 60.0
    allocation_vcpus: int = 128
    max_spot_vcpus: int = 756
    renewal_lead_s: int = 240
    cooldown_s: int = 600
    ceiling_on_demand: bool = True
    reliable_works: bool = True
    billing: str = "hourly-refund"
    flat_micros: Micros = 0
    tasks: int = 0
    task_vcpus: int = 1
    value_of_time_usd_per_h: float = 0.0
    boot_s: float = 240.0
    gap_s: float = 240.0
    exclude_markets: tuple[str, ...] = ()
    unit: str = "vcpu"

    def __post_init__(self) -> None:
        if not 0 < self.scaling_efficiency <= 1:
            raise ValueError(f"scaling_efficiency is {self.scaling_efficiency}: it must be in (0, 1]")
        if not (isfinite(self.resize_overhead_s) and isfinite(self.eviction_overhead_s)):
            raise ValueError("the overheads must be finite")
        if not (0 <= self.boot_s < float("inf") and 0 < self.gap_s < float("inf")):
            raise ValueError(f"boot_s is {self.boot_s} and gap_s {self.gap_s}: want at least 0, and more than 0")
        if min(self.resize_overhead_s, self.eviction_overhead_s, self.cooldown_s, self.max_spot_vcpus) < 0:
            raise ValueError("overheads, cooldown and the most vCPUs held cannot be negative")
        if self.allocation_vcpus < 1:
            raise ValueError(f"allocation_vcpus is {self.allocation_vcpus}: it must be at least 1")
        if self.tasks < 0 or self.task_vcpus < 1:
            raise ValueError(f"tasks is {self.tasks} and task_vcpus {self.task_vcpus}: want at least 0 and 1")
        if not 0 < self.renewal_lead_s < HOUR_S:
            raise ValueError(f"renewal_lead_s is {self.renewal_lead_s}: it must lie within the hour")
        if self.billing not in KINDS:
            raise ValueError(f"billing is {self.billing!r}: it must be one of {', '.join(KINDS)}")
        if not 0 <= self.value_of_time_usd_per_h < float("inf"):
            raise ValueError(f"value_of_time_usd_per_h is {self.value_of_time_usd_per_h}: it must be finite, 0 or more")
        if self.unit not in UNITS:
            raise ValueError(f"unit is {self.unit!r}: it must be one of {', '.join(UNITS)}")
        if self.flat_micros < 0:
            raise ValueError(f"flat_micros is {self.flat_micros}: it cannot be negative")

    def size(self, kind: InstanceType) -> int:
        """Return the size of a machine in the job's unit."""
        return size_in(self.unit, kind)

    @property
    def unit_name(self) -> str:
        """The unit for a reader."""
        return UNITS[self.unit]

    def useful_vcpus(self, vcpus: int) -> int:
        """Return how few vCPUs work as fast as so many: with 8 tasks, 5 as fast as 4, and any more than 8 as fast as 8.

        One task alone runs on fewer vCPUs, too.
        """
        if not self.tasks or vcpus < self.task_vcpus:
            return vcpus
        rounds = -(-self.tasks // (vcpus // self.task_vcpus))
        return -(-self.tasks // rounds) * self.task_vcpus

    @property
    def pays_whole_hours(self) -> bool:
        """Whether an hour that has begun is paid for, so that there is no saving in leaving it early."""
        return KINDS[self.billing] is BillingKind.HOURLY_REFUND

    def is_refunded(self, first_hour: bool) -> bool:
        """Return whether an eviction refunds its hour; `first_hour`: the hour of the launch."""
        return is_refunded(KINDS[self.billing], first_hour)

    def hour_micros(self, price_micros: Micros) -> Micros:
        """Return the cost of a spot instance-hour that begins at this price of its market."""
        return hour_micros(KINDS[self.billing], self.flat_micros, price_micros)

    def excludes(self, market: Market) -> bool:
        """Return whether nothing may be bought in a market, by its name, its type or its zone."""
        return not {str(market), market.instance_type, market.zone}.isdisjoint(self.exclude_markets)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "JobModel":
        """Return the model that `dataclasses.asdict` wrote."""
        return cls(**{**record, "exclude_markets": tuple(record.get("exclude_markets", ()))})
