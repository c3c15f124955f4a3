"""How bills look to a reader."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table

from bidding.billing.requests import Bill, SpotRequest
from bidding.market.model import Market
from bidding.market.money import Micros, usd
from bidding.market.traces import Trace
from flows.terminal.output import output_console
from flows.terminal.run_view import clock_time
from tasks.market_data.bills import iso

#: Hours of a bill that are shown; of more, the first ones.
_HOURS = 48
#: Columns where there is no terminal.
_WIDTH = 180


@dataclass
class Sums:
    """What many bills come to."""

    requests: int = 0
    granted: int = 0
    evicted: int = 0
    usable_s: int = 0
    refunded_micros: Micros = 0
    total_micros: Micros = 0
    total_prorata_micros: Micros = 0

    def add(self, bill: Bill) -> None:
        """Count one more."""
        self.requests += 1
        self.granted += bill.granted
        self.evicted += bill.evicted_at_s is not None
        self.usable_s += bill.usable_s
        self.refunded_micros += bill.refunded_micros
        self.total_micros += bill.total_micros
        self.total_prorata_micros += bill.total_prorata_micros


def show_one(traces: Mapping[Market, Trace], request: SpotRequest, bill: Bill, billing: str) -> None:
    """Print the bill of one request, hour by hour."""
    console = output_console(_WIDTH)
    console.print(
        f"{request.count} x {request.market}, bid {_price(request.bid_micros)}, {iso(request.at_s)}, {billing}",
        soft_wrap=True,
        markup=False,
    )
    trace = traces[request.market]
    if not bill.granted:
        price = trace.price_at(request.at_s)
        reason = (
            f"no price is known before {iso(int(trace.times_s[0]))}"
            if price is None
            else f"the price was {_price(price)}, above the bid"
        )
        console.print(f"not granted: {reason}", soft_wrap=True)
        return
    if bill.charges:
        console.print(_hours(bill))
    console.print(_figures(request, bill))
    if request.billed_until_s > int(trace.times_s[-1]):
        console.print(f"the last price known is of {iso(int(trace.times_s[-1]))}: it holds on", soft_wrap=True)


def show_many(requests: Sequence[SpotRequest], first: Sequence[Bill], sums: Sums, billing: str) -> None:
    """Print the first bills, a line each, and what all come to."""
    console = output_console(_WIDTH)
    table = _table(
        ("request", "market", "count", "bid", "at", "granted", "ended", "why", "refunded", "total", "pro rata")
    )
    for number, (request, bill) in enumerate(zip(requests, first, strict=False), start=1):
        table.add_row(
            *(str(number), str(request.market), str(request.count), _price(request.bid_micros), iso(request.at_s)),
            *(
                "yes" if bill.granted else "no",
                "-" if bill.ended_at_s is None else iso(bill.ended_at_s),
                _why(request, bill),
            ),
            *(usd(bill.refunded_micros), usd(bill.total_micros), usd(bill.total_prorata_micros)),
        )
    console.print(table)
    if len(requests) > len(first):
        console.print(f"... and {len(requests) - len(first):,} more; --json FILE has them all")
    console.print(
        f"{sums.requests:,} requests, {billing}: {sums.granted:,} granted, {sums.evicted:,} evicted, "
        f"usable {clock_time(sums.usable_s)} h\n"
        f"total {usd(sums.total_micros)}, pro rata {usd(sums.total_prorata_micros)}, "
        f"refunded {usd(sums.refunded_micros)}",
        soft_wrap=True,
    )


def _hours(bill: Bill) -> Table:
    table = _table(("hour", "from", "price", "charged", "refunded"))
    for charge in bill.charges[:_HOURS]:
        table.add_row(
            *(str(charge.hour_index + 1), iso(charge.hour_start_s), _price(charge.price_micros)),
            *(usd(charge.amount_micros, 6), "yes" if charge.refunded else ""),
        )
    if len(bill.charges) > _HOURS:
        table.caption = f"... and {len(bill.charges) - _HOURS:,} hours more; --json FILE has them all"
    return table


def _figures(request: SpotRequest, bill: Bill) -> Table:
    grid = Table.grid(padding=(0, 2))
    assert bill.ended_at_s is not None, "what is granted ends"
    for name, value in (
        ("ended", f"{iso(bill.ended_at_s)} ({_why(request, bill)})"),
        ("usable", f"{clock_time(bill.usable_s)} h"),
        ("refunded", usd(bill.refunded_micros, 6)),
        ("total", usd(bill.total_micros, 6)),
        ("pro rata", usd(bill.total_prorata_micros, 6)),
    ):
        grid.add_row(name, value)
    return grid


def _why(request: SpotRequest, bill: Bill) -> str:
    if not bill.granted:
        return "-"
    if bill.evicted_at_s is not None:
        return "evicted"
    return "let go" if bill.ended_at_s != request.window_ends_s else "window's end"


def _price(micros: Micros) -> str:
    return usd(micros, 6)


def _table(titles: Sequence[str]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), caption_justify="left")
    for title in titles:
        right = title in ("count", "bid", "price", "charged", "refunded", "total", "pro rata")
        table.add_column(title, justify="right" if right else "left", no_wrap=True)
    return table
