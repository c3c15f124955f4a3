"""The verb `proteus cost`."""

from pathlib import Path
from typing import Any

import click

from proteus_spot.bidding.market.money import to_dollars, usd
from proteus_spot.flows.cli.options import json_option, state_options
from proteus_spot.flows.terminal.output import notes, write_json
from proteus_spot.flows.terminal.tables import Column, show_lines, show_table, show_text


@click.command(short_help="Show the costs of jobs by market, tier and use.")
@click.argument("job", nargs=-1)
@state_options
@json_option()
def cost(job: tuple[str, ...], database: str | None, directory: Path | None, json_target: str | None) -> None:
    """Show the costs of all jobs, or of the named ones, by market, tier and use.

    useful: the machine worked; idle: it booted, or waited for the end of its paid hour; hand-over: it transferred its
    work to others; lost: its work was repeated; refunded: the market returned the money.

    The jobs are those that `proteus jobs` lists, including the local runs in runs/. In addition to the ledger, bytes
    between zones are estimated, at PROTEUS_CROSS_ZONE_USD_PER_GB.
    """
    from proteus_spot.bidding.billing.spending import Use
    from proteus_spot.tasks.market.costs import NOT_COUNTED
    from proteus_spot.tasks.reports.job_list import list_costs, list_zone_traffic
    from proteus_spot.tasks.task_runtime import cross_zone_usd_per_gb

    rows, left_out = list_costs(job, database, directory)
    notes(left_out)
    total: dict[str, Any] = {"spent_usd": to_dollars(sum(row.spent for row in rows))}
    records = [
        {
            "job": row.job_id,
            "market": row.market,
            "tier": row.tier,
            "why": row.why,
            "machine_hours": row.machine_hours,
            "spent_usd": to_dollars(row.spent),
            **{f"{use.value.replace('-', '_')}_usd": to_dollars(row.uses.get(use, 0)) for use in Use},
        }
        for row in rows
    ]
    per_gb, moved = cross_zone_usd_per_gb(), list_zone_traffic(job, database, directory)
    estimates = [
        {"job": each.job_id, "bytes_by_zones": dict(each.bytes_by_zones), "crossed_usd": each.usd(per_gb)}
        for each in moved
    ]
    write_json(json_target, {"rows": records, **total, "estimates": estimates, "not_counted": list(NOT_COUNTED)})
    if json_target == "-":
        return
    if not rows:
        show_lines("nothing was spent")
        return
    cells = [
        (
            *(row.job_id, row.market, row.tier, f"{row.machine_hours:g}", usd(row.spent)),
            *(usd(row.uses.get(use, 0)) for use in Use),
        )
        for row in rows
    ]
    sums = (usd(sum(row.uses.get(use, 0) for row in rows)) for use in Use)
    hours = sum(row.machine_hours for row in rows)
    cells.append(("all", "", "", f"{hours:g}", usd(sum(row.spent for row in rows)), *sums))
    columns = (
        *(
            Column("job"),
            Column("market"),
            Column("tier", 1),
            Column("hours", 2, right=True),
            Column("spent", right=True),
        ),
        *(Column(str(use), 3 + number, right=True) for number, use in enumerate(Use)),
    )
    show_table(columns, cells)
    for each in moved:
        show_text(f"{each.job_id}: {each.line(per_gb)}")
    show_text(f"not in the ledger: {'; '.join(NOT_COUNTED)}")
    show_lines(*dict.fromkeys(f"{row.job_id}: {row.why}" for row in rows if row.why))
