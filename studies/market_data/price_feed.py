"""Whether the prices of a market reach its time: a file that ends before it lets nothing be bought."""

from pathlib import Path

from proteus_spot.bidding.market.spot_market import MarketError
from proteus_spot.infra.clock import ScaledClock, open_clock
from proteus_spot.infra.local_market.announcement import Announcement
from proteus_spot.infra.local_market.environment import clock_file
from proteus_spot.infra.settings import load_settings
from proteus_spot.studies.times import minute

#: Real seconds for the market to answer.
_ANSWER_S = 5.0


def ended_prices(up: Announcement | None) -> str:
    """Return why nothing can be bought at the market's prices, because they end before its now; else an empty text.

    Parameters
    ----------
    up : a running `proteus up`; None for the market endpoint that the settings name. AWS itself is not asked.
    """
    if up is not None:
        now_s = ScaledClock(clock_file(Path(up.directory))).now_s()
        if now_s <= up.market_until_s:
            return ""
        return (
            f"the generated prices end at {minute(up.market_until_s)}, and the market's time is {minute(int(now_s))}: "
            "end `proteus up`, and start it in another --dir"
        )
    settings = load_settings()
    if settings.ec2_endpoint_url is None:
        return ""
    from proteus_spot.infra.ec2.ec2_spot_market import Ec2SpotMarket

    now_s, limit_s = int(open_clock(settings.clock).now_s()), settings.prices_max_age_s
    try:
        market = Ec2SpotMarket(settings, attempts=1, connect_s=_ANSWER_S, read_s=_ANSWER_S)
        if market.newest_price_s(now_s - limit_s, now_s) is not None:
            return ""
    except MarketError:
        return ""  # the ticks say so; here it may be out of reach
    return (
        f"the market at {settings.ec2_endpoint_url} has no price of the last {limit_s / 86_400:g} days before its "
        f"time, {minute(now_s)}: no spot machine is bought; serve a price file that reaches it, or set PROTEUS_CLOCK"
    )
