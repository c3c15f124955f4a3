"""What a read of the market shows: the machines of an account, as they were a while ago, and not forever."""

from dataclasses import dataclass, field

from proteus_spot.bidding.market.model import InstanceFact
from proteus_spot.infra.simulated_ec2.held_instances import HeldInstance
from proteus_spot.infra.simulated_ec2.rules.behaviour import Ec2Behaviour, lag_s
from proteus_spot.infra.simulated_ec2.rules.machine_changes import MachineChanges


@dataclass(frozen=True, slots=True)
class Listing:
    """What one read shows.

    Parameters
    ----------
    instances : the instances that it lists, in order of launch.
    requests : the instances whose spot requests it finds, by id, as old as the read shows requests.
    """

    instances: list[InstanceFact]
    requests: dict[str, InstanceFact] = field(default_factory=dict)


@dataclass(slots=True)
class LaggingReads:
    """The reads of a market; each of them lags by times of its own."""

    _count: int = 0

    def listing(self, machines: MachineChanges, account: str, behaviour: Ec2Behaviour, seed: str) -> Listing:
        """Return what the next read of an account shows.

        Parameters
        ----------
        behaviour : how far a read lags, and for how long it shows what has ended.
        seed : that of the market, from which the times follow.
        """
        self._count += 1
        now_s = machines.now_s
        seen_s = now_s - lag_s(behaviour.instance_lag_s, f"{seed}/instances", self._count)
        requests_s = now_s - lag_s(behaviour.request_lag_s, f"{seed}/requests", self._count)
        own = [
            held
            for held in machines
            if held.options.account == account and not _is_forgotten(held, behaviour.remember_s, now_s)
        ]
        return Listing(
            [held.fact(seen_s) for held in own if held.launched_at_s <= seen_s],
            {
                held.instance_id: held.fact(requests_s)
                for held in own
                if held.is_spot and held.launched_at_s <= requests_s
            },
        )


def _is_forgotten(held: HeldInstance, remember_s: int | None, now_s: int) -> bool:
    return remember_s is not None and held.ended_at_s is not None and now_s - held.ended_at_s > remember_s
