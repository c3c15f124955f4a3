"""The verb `proteus cost`."""

from typing import Any

import click
from rich.console import Console

from bidding.market.money import to_dollars, usd
from flows.cli.options import json_option
from flows.terminal.output import plain_table, write_json


@click.command()
@click.argument("job", nargs=-1)
@json_option()
def cost(job: tuple[str, ...], json_target: str | None) -> None:
    """Show what jobs cost (all, or those named), by market, tier and use.

    useful: the machine worked; idle: it booted, or waited out its paid hour; hand-over: it gave its work to others;
    lost: its work was done again; refunded: the market gave the money back.
    """
    from bidding.billing.spending import Use
    from tasks.market.costs import cost_rows

    rows = cost_rows(job)
    total: dict[str, Any] = {"spent_usd": to_dollars(sum(row.spent for row in rows))}
    records = [
        {
            "job": row.job_id,
            "market": row.market,
            "tier": row.tier,
            "machine_hours": row.machine_hours,
            "spent_usd": to_dollars(row.spent),
            **{f"{use.value.replace('-', '_')}_usd": to_dollars(row.uses.get(use, 0)) for use in Use},
        }
        for row in rows
    ]
    write_json(json_target, {"rows": records, **total})
    if json_target == "-":
        return
    table = plain_table("", "job", "market", "tier", "hours", "spent", *(str(use) for use in Use))
    for row in rows:
        uses = (usd(row.uses.get(use, 0)) for use in Use)
        table.add_row(row.job_id, row.market, row.tier, f"{row.machine_hours:g}", usd(row.spent), *uses)
    sums = (usd(sum(row.uses.get(use, 0) for row in rows)) for use in Use)
    table.add_row("all", "", "", f"{sum(row.machine_hours for row in rows):g}", usd(sum(r.spent for r in rows)), *sums)
    Console().print(table if rows else "nothing was spent")
