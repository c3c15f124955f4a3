"""The bid of a market at a decision: its price and a random delta, from the sweep's seed."""

from hashlib import blake2b

from proteus_spot.bidding.market.model import Market
from proteus_spot.bidding.market.money import Micros

#: The interval of the delta: 0.00001 to 0.2 dollars.
LEAST_DELTA_MICROS: Micros = 10
MOST_DELTA_MICROS: Micros = 200_000

_DRAWS = 1 << 64


def draw_bid(seed: int, market: Market, decision: int, price_micros: Micros, on_demand_micros: Micros) -> Micros:
    """Return the limit that a sweep bids in a market at a decision: the price and a uniform random delta.

    It is at most the price on demand, since that is the most that a machine may be charged; where the market stands
    above it, the limit is the price, and the market is not bought in.

    The same arguments give the same bid, in every process; each market and each decision has a draw of its own.

    Parameters
    ----------
    decision : number of the decision point, from 0; `SweepEngine.decisions` before its tick.
    price_micros : the market's present price.
    on_demand_micros : the price of the same machine on demand.

    Notes
    -----
    Source: SpotTune, section III-B (as Tributary): a random delta in [0.00001, 0.2] dollars. The delta is the bid, and
    the probability of an eviction is computed for the limit that is bid.
    Differs: no limit is above the price on demand.
    """
    text = f"{seed}\n{market.instance_type}/{market.zone}\n{decision}"
    draw = int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
    delta = LEAST_DELTA_MICROS + draw * (MOST_DELTA_MICROS - LEAST_DELTA_MICROS + 1) // _DRAWS
    return max(price_micros, min(price_micros + delta, on_demand_micros))
