"""How far the simulated market behaves as EC2 does, beyond prices and capacity.

*Source*: EC2 API reference, "Eventual consistency" (a read may not show what a request just did); EC2 user guide
("terminated instances remain visible after termination for approximately one hour"), and its page on idempotency as of
2013 (a token is valid for at least 24 hours after the termination of its instance; today's page gives no time).
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

_HOUR_S = 3600


@dataclass(frozen=True, slots=True)
class Ec2Behaviour:
    """Behaviour of a market; the default is a market whose reads show everything at once.

    Parameters
    ----------
    instance_lag_s : least and greatest age in seconds of what a read shows of instances: an instance launched less than
        that ago is not listed, and one that ended less than that ago is still shown alive. Each read has an age of its
        own, so an instance may be listed, and at the next read not.
    request_lag_s : the same for spot requests.
    remember_s : seconds for which an ended instance is described; None: forever.
    token_memory_s : seconds for which a client token is remembered after its last instance has ended; None: forever.
    quotas : vCPUs that an account may hold, by quota code (`bidding.market.quotas`); one that is missing has none.
    spot_role : whether the account has the service-linked role of EC2 spot.
    """

    instance_lag_s: tuple[int, int] = (0, 0)
    request_lag_s: tuple[int, int] = (0, 0)
    remember_s: int | None = None
    token_memory_s: int | None = None
    quotas: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    spot_role: bool = True

    def __post_init__(self) -> None:
        for least_s, most_s in (self.instance_lag_s, self.request_lag_s):
            if not 0 <= least_s <= most_s:
                raise ValueError(f"a read cannot lag by {least_s} to {most_s} s")


#: Reads show everything at once, and nothing is forgotten.
IMMEDIATE = Ec2Behaviour()

#: EC2's own behaviour, with the times that its documents give or that were seen.
HONEST = Ec2Behaviour(
    instance_lag_s=(0, 30), request_lag_s=(0, 60), remember_s=_HOUR_S, token_memory_s=24 * _HOUR_S
)  # fmt: skip


def lag_s(span_s: tuple[int, int], seed: str, read: int) -> int:
    """Return the age of what read number `read` shows: the same for the same seed and number, spread over the span."""
    least_s, most_s = span_s
    if least_s == most_s:
        return least_s
    digest = hashlib.blake2s(f"{seed}/{read}".encode(), digest_size=8).digest()
    return least_s + int.from_bytes(digest) % (most_s - least_s + 1)
