"""Orders of a sweep, the output of `SweepEngine`. An order's id depends only on the sweep and its past."""

from dataclasses import dataclass

from proteus_spot.bidding.market.model import Market
from proteus_spot.bidding.market.money import Micros
from proteus_spot.bidding.tuning.trials import SweepState


@dataclass(frozen=True, slots=True)
class Deploy:
    """Run a trial on a new machine, from its newest state; repeated at every tick until it is answered.

    `order_id` names the deployment everywhere: the allocation, the tag of the machine, its folder. With `bid_micros`
    None the machine is bought on demand. The trial pauses at `until_step`. `from_step` is the step of the newest
    state when it was ordered; a newer one is restored where there is one.
    """

    order_id: str
    trial: int
    market: Market
    bid_micros: Micros | None
    from_step: int
    until_step: int
    reason: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class PauseTrial:
    """Ask a deployment to save its trial's state and stop; repeated until it has ended or its machine is gone."""

    deployment: str
    trial: int
    why: str


@dataclass(frozen=True, slots=True)
class Release:
    """End the machine of a deployment; repeated until it is gone, but not after a notice of its eviction."""

    allocation_id: str
    why: str


@dataclass(frozen=True, slots=True)
class Finish:
    """Close the sweep, which has ended in `state`; repeated until it is closed."""

    state: SweepState
    why: str


SweepOrder = Deploy | PauseTrial | Release | Finish
