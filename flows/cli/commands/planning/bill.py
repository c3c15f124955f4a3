"""The verb `proteus bill`."""

from collections.abc import Mapping
from typing import Any

import click

from proteus_spot.flows.cli.job_options import JobCommand, billing_options
from proteus_spot.flows.cli.options import json_option, max_life_option, product_option
from proteus_spot.flows.terminal.output import write_text
from proteus_spot.flows.terminal.progress_bar import progress
from proteus_spot.infra.errors import InputError

#: Options that one request needs besides an end.
_NEEDED = ("market", "count", "bid", "at")
#: Maximum number of bills that are shown.
SHOWN = 10
#: Number of bills between two progress reports.
_STRIDE = 1000


@click.command(cls=JobCommand, short_help="Compute the bill of an allocation on recorded prices.")
@click.option("--prices", required=True, metavar="FILE", help="Price file: path or URL.")
@product_option
@click.option("--market", metavar="TYPE/ZONE", help="Market of the request, as in c4.large/us-east-1a.")
@click.option("--count", metavar="N", help="Number of machines, granted all or none.")
@click.option("--bid", metavar="USD", help="Maximum price per instance-hour, as in 0.0324.")
@click.option("--at", metavar="TIME", help="Time of the request, as in 2016-04-01T12:30:00Z.")
@click.option("--until", metavar="TIME", help="Time at which you terminate the machines.")
@click.option("--hours", metavar="H", help="Length of the window to bill, from --at.")
@click.option(
    "--requests", metavar="FILE", help="Many requests: CSV or JSON lines: type,zone,count,bid,at,until,hours."
)
@billing_options
@max_life_option
@json_option()
def bill(
    prices: str,
    product: str | None,
    requests: str | None,
    max_life: str | None,
    json_target: str | None,
    job: dict[str, Any],
    **fields: str | None,
) -> None:
    """Compute the bill of an allocation: whether it is granted, its eviction, the charge of every hour, and refunds.

    Give one request by options, with --until, --hours or both; or many by --requests. The price file determines grants
    and evictions, the billing model the charges.

    \b
    Examples:
      proteus bill --prices prices.csv.gz --market c4.large/us-east-1a --count 4 --bid 0.05 \\
        --at 2016-04-01T12:30:00Z --hours 20
      proteus bill --prices prices.csv.gz --requests requests.csv --json bills.json
    """  # noqa: D301 - click reads the control character
    from proteus_spot.bidding.billing.bulk_requests import bills
    from proteus_spot.flows.terminal.bill_view import Sums, show_many, show_one
    from proteus_spot.infra.market_data.price_files import read_prices
    from proteus_spot.infra.market_data.request_files import read_requests
    from proteus_spot.studies.billing_options import billing_model
    from proteus_spot.studies.market_data.bills import (
        as_json,
        as_json_line,
        as_json_list,
        the_request,
    )

    given = _given(requests, fields)
    billing = job["transient"].pop("billing")
    model = billing_model(billing, **job["transient"], max_life=max_life)
    with progress() as report:
        report(0, 1, f"reading {prices}")
        traces = read_prices(prices, product=product)
        if requests is None:
            asked = [the_request(traces, prices, **given)]
        else:
            report(0, 1, f"reading {requests}")
            asked = read_requests(requests, traces.markets, prices)
        sums, lines, first = Sums(), [], []
        for done, billed in enumerate(bills(traces, asked, model), start=1):
            sums.add(billed)
            if done <= SHOWN:
                first.append(billed)
            if requests is not None and json_target is not None:
                lines.append(as_json_line(billed))  # for 100,000 bills the text takes a fraction of the objects' memory
            if done % _STRIDE == 0:
                report(done, len(asked), "bills")
    if json_target is not None:
        write_text(json_target, as_json(first[0]) if requests is None else as_json_list(lines))
    if json_target == "-":
        return
    if requests is None:
        show_one(traces, asked[0], first[0], billing)
    else:
        show_many(asked, first, sums, billing)


def _given(requests: str | None, fields: Mapping[str, str | None]) -> dict[str, str]:
    """Return the options of the one request, without those left out; none where a file has the requests."""
    given = {name: value for name, value in fields.items() if value is not None}
    if requests is not None:
        if given:
            raise InputError(f"--{next(iter(given))}: the requests are in {requests}; leave it out, or --requests")
        return {}
    for name in _NEEDED:
        if name not in given:
            raise InputError(f"--{name}: is missing; give it, or many requests by --requests FILE")
    return given
