"""Number of reliable machines of a job: the cheapest number that can hold its state.

More machines cost more, and one of them fails sooner. Fewer must receive the same stream of updates. The caller
supplies the cost of a number, from a simulation or from prices; this module decides which numbers suffice, and what
failures add.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from math import isfinite
from typing import Any, Literal

from proteus_spot.bidding.market.model import HOUR_S

#: Ratios of transient to reliable above which AgileML's stages 2 and 3 hold, and the highest one that was measured.
_STAGE_2, _STAGE_3, _MEASURED = 1.0, 15.0, 63.0


@dataclass(frozen=True, slots=True)
class ReliableTierModel:
    """Facts by which a number of reliable machines is judged.

    Attributes
    ----------
    transient_vcpus : most spot vCPUs that the job holds.
    vcpus : of one reliable machine.
    most_ratio : transient vCPUs for one reliable vCPU up to which no more need be known of the job.
    model_bytes, clocks_per_s, link_bytes_per_s : size of the model, clocks that the whole job does in a second, and
        what one reliable machine can receive in a second; 0: not known.
    notice_s : seconds from the notice of an eviction to the loss.
    failures_per_hour : of one reliable machine, which none announces.
    checkpoint_s, restart_s : seconds between two checkpoints of the tier, and those without progress after a failure.

    Notes
    -----
    Source: Proteus (EuroSys 2017), 3.2 and 6.4 (stages, 63 to 1 in Fig. 13), 3.3 (checkpoints of reliable machines).
    Differs: the paper counts machines, all alike; where types differ, vCPUs say what work pushes at the tier. It gives
    no rate of failures, and no interval: one in 10,000 hours and ten minutes are this project's.
    """

    transient_vcpus: int
    vcpus: int = 4
    most_ratio: float = _MEASURED
    model_bytes: float = 0.0
    clocks_per_s: float = 0.0
    link_bytes_per_s: float = 0.0
    notice_s: float = 120.0
    failures_per_hour: float = 1e-4
    checkpoint_s: float = 600.0
    restart_s: float = 300.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not isfinite(value) or value < 0:
                raise ValueError(f"{name} is {value}: it must be a number of 0 or more")
        if not (self.transient_vcpus and self.vcpus and self.most_ratio and self.notice_s):
            raise ValueError("transient_vcpus, vcpus, most_ratio and notice_s must be above 0")
        is_given = (self.model_bytes > 0, self.clocks_per_s > 0, self.link_bytes_per_s > 0)
        if any(is_given) and not all(is_given):
            raise ValueError("model_bytes, clocks_per_s and link_bytes_per_s: say all three, or none")

    def ratio(self, count: int) -> float:
        """Return the transient vCPUs for each reliable one."""
        return self.transient_vcpus / (count * self.vcpus)

    def stage(self, count: int) -> Literal[1, 2, 3]:
        """Return AgileML's stage with all transient machines held."""
        ratio = self.ratio(count)
        return 3 if ratio > _STAGE_3 else 2 if ratio > _STAGE_2 else 1

    def lost_share(self, count: int) -> float:
        """Return the share of the time that failures of the tier are expected to cost, below 1.

        Notes
        -----
        Any of `count` machines fails at `count` times the rate of one; all work since the last checkpoint, half an
        interval on average, is done again after the restart. u useful seconds lose u r s, so that the share is
        r s / (1 + r s).
        """
        rate_s = count * self.failures_per_hour / HOUR_S
        lost = rate_s * (self.checkpoint_s / 2 + self.restart_s)
        return lost / (1.0 + lost)

    def why_not(self, count: int) -> str:
        """Return why `count` machines do not suffice; empty if they do.

        Notes
        -----
        In stages 2 and 3 the updates that ActivePSs push to the BackupPSs are coalesced: at most the model once a
        clock, spread over the tier. The rest must arrive between the notice of an eviction of all and the loss.
        """
        if self.link_bytes_per_s:
            each_bytes = self.model_bytes / count
            used = each_bytes * self.clocks_per_s / self.link_bytes_per_s
            if used > 1:
                return f"the updates of its share of the model are {used:.3g} times what its link takes in"
            if each_bytes / self.link_bytes_per_s > self.notice_s:
                return (
                    f"its share of the model takes {each_bytes / self.link_bytes_per_s:,.0f} s to arrive, and a notice "
                    f"leaves {self.notice_s:,.0f} s"
                )
        elif self.ratio(count) > self.most_ratio:
            return (
                f"{self.ratio(count):.3g} transient vCPUs to 1 are more than the {self.most_ratio:.3g} "
                "that were measured, and the network is not known"
            )
        return ""


@dataclass(frozen=True, slots=True)
class ReliableNumber:
    """A number of reliable machines, weighed.

    Attributes
    ----------
    ratio, stage : of transient to reliable vCPUs, and AgileML's stage at that ratio.
    cost : cost that the caller gave, failures added; in the caller's unit.
    lost_share : of the time, by failures of reliable machines.
    why_not : why it does not suffice; empty if it does.
    """

    count: int
    ratio: float
    stage: Literal[1, 2, 3]
    cost: float
    lost_share: float
    why_not: str


def weigh(tier: ReliableTierModel, cost_by_count: Mapping[int, float]) -> tuple[ReliableNumber, ...]:
    """Return the numbers by size.

    Parameters
    ----------
    cost_by_count : cost of a job, or of an hour of it, by number of reliable machines. It includes these machines and
        leaves out failures.

    Raises
    ------
    ValueError
        If a number is below 1: there is nowhere for the state to be safe.
    """
    if min(cost_by_count, default=1) < 1:
        raise ValueError(f"{min(cost_by_count)} reliable machines: the state needs at least one")
    return tuple(
        ReliableNumber(
            count=count,
            ratio=tier.ratio(count),
            stage=tier.stage(count),
            cost=cost_by_count[count] / (1.0 - tier.lost_share(count)),
            lost_share=tier.lost_share(count),
            why_not=tier.why_not(count),
        )
        for count in sorted(cost_by_count)
    )


def cheapest_number(numbers: Iterable[ReliableNumber]) -> ReliableNumber | None:
    """Return the cheapest number that suffices, the smaller of two at the same cost; None if none does."""
    return min((each for each in numbers if not each.why_not), key=lambda each: (each.cost, each.count), default=None)


def load_tier(record: Mapping[str, Any], *, transient_vcpus: int, vcpus: int) -> ReliableTierModel:
    """Return the tier in which `record`'s entries replace the defaults by name.

    Raises
    ------
    ValueError
        Naming the entry that is unknown or no such number.
    """
    given = {"transient_vcpus": transient_vcpus, "vcpus": vcpus}
    names = [field.name for field in fields(ReliableTierModel) if field.name not in given]
    for entry, value in record.items():
        if entry not in names:
            raise ValueError(f"{entry}: is not a number of a reliable tier; there are {', '.join(names)}")
        fits = isinstance(value, int | float) and not isinstance(value, bool)
        if not fits:
            raise ValueError(f"{entry} is {value!r}: it must be a number")
    return ReliableTierModel(**given, **record)
