"""Terminal output of bills: one bill by hours, or a table of several."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from proteus_spot.bidding.billing.bulk_requests import Bill, SpotRequest
from proteus_spot.bidding.market.model import Market
from proteus_spot.bidding.market.money import Micros, usd
from proteus_spot.bidding.market.traces import Trace
from proteus_spot.flows.terminal.run_view import clock_time
from proteus_spot.flows.terminal.tables import Column, show_lines, show_table
from proteus_spot.studies.market_data.bills import iso

#: Maximum number of hours of a bill that are shown, from the first.
_HOURS = 48
_BILLS = (
    *(Column("request"), Column("market"), Column("count", 3, right=True), Column("bid", 4, right=True)),
    *(Column("at", 5), Column("granted", 7), Column("ended", 6), Column("why", 2)),
    *(Column("refunded", 8, right=True), Column("total", right=True), Column("pro rata", 9, right=True)),
)
_CHARGES = (
    *(Column("hour"), Column("from", 1), Column("price", 2, right=True), Column("charged", right=True)),
    Column("refunded", 3, right=True),
)


@dataclass
class Sums:
    """Sums over many bills."""

    requests: int = 0
    granted: int = 0
    evicted: int = 0
    usable_s: int = 0
    refunded_micros: Micros = 0
    total_micros: Micros = 0
    total_prorata_micros: Micros = 0

    def add(self, bill: Bill) -> None:
        """Add a bill to the sums."""
        self.requests += 1
        self.granted += bill.granted
        self.evicted += bill.evicted_at_s is not None
        self.usable_s += bill.usable_s
        self.refunded_micros += bill.refunded_micros
        self.total_micros += bill.total_micros
        self.total_prorata_micros += bill.total_prorata_micros


def show_one(traces: Mapping[Market, Trace], request: SpotRequest, bill: Bill, billing: str) -> None:
    """Print the bill of one request, hour by hour."""
    show_lines(f"{request.count} x {request.market}, bid {_price(request.bid_micros)}, {iso(request.at_s)}, {billing}")
    trace = traces[request.market]
    if not bill.granted:
        price = trace.price_at(request.at_s)
        reason = (
            f"no price is known before {iso(int(trace.times_s[0]))}"
            if price is None
            else f"the price was {_price(price)}, above the bid"
        )
        show_lines(f"not granted: {reason}")
        return
    if bill.charges:
        _show_hours(bill)
    _show_figures(request, bill)
    if request.billed_until_s > int(trace.times_s[-1]):
        show_lines(f"the last price known is of {iso(int(trace.times_s[-1]))}: it holds on")


def show_many(requests: Sequence[SpotRequest], first: Sequence[Bill], sums: Sums, billing: str) -> None:
    """Print the first bills, one per line, and the sums of all."""
    rows = [
        (
            *(str(number), str(request.market), str(request.count), _price(request.bid_micros), iso(request.at_s)),
            *(
                "yes" if bill.granted else "no",
                "-" if bill.ended_at_s is None else iso(bill.ended_at_s),
                _why(request, bill),
            ),
            *(usd(bill.refunded_micros), usd(bill.total_micros), usd(bill.total_prorata_micros)),
        )
        for number, (request, bill) in enumerate(zip(requests, first, strict=False), start=1)
    ]
    show_table(_BILLS, rows)
    if len(requests) > len(first):
        show_lines(f"... and {len(requests) - len(first):,} more; --json FILE has them all")
    show_lines(
        f"{sums.requests:,} requests, {billing}: {sums.granted:,} granted, {sums.evicted:,} evicted, "
        f"usable {clock_time(sums.usable_s)} (h:mm:ss)",
        f"total {usd(sums.total_micros)}, pro rata {usd(sums.total_prorata_micros)}, "
        f"refunded {usd(sums.refunded_micros)}",
    )


def _show_hours(bill: Bill) -> None:
    rows = [
        (
            *(str(charge.hour_index + 1), iso(charge.hour_start_s), _price(charge.price_micros)),
            *(usd(charge.amount_micros, 6), "yes" if charge.refunded else ""),
        )
        for charge in bill.charges[:_HOURS]
    ]
    hidden = len(bill.charges) - _HOURS
    show_table(_CHARGES, rows, caption=f"... and {hidden:,} hours more; --json FILE has them all" if hidden > 0 else "")


def _show_figures(request: SpotRequest, bill: Bill) -> None:
    assert bill.ended_at_s is not None, "what is granted ends"
    figures = (
        ("ended", f"{iso(bill.ended_at_s)} ({_why(request, bill)})"),
        ("usable", f"{clock_time(bill.usable_s)} (h:mm:ss)"),
        ("refunded", usd(bill.refunded_micros, 6)),
        ("total", usd(bill.total_micros, 6)),
        ("pro rata", usd(bill.total_prorata_micros, 6)),
    )
    width = max(len(name) for name, _ in figures)
    show_lines(*(f"{name:<{width}}  {value}" for name, value in figures))


def _why(request: SpotRequest, bill: Bill) -> str:
    if not bill.granted:
        return "-"
    if bill.evicted_at_s is not None:
        return "evicted"
    return "let go" if bill.ended_at_s != request.window_ends_s else "window's end"


def _price(micros: Micros) -> str:
    return usd(micros, 6)
