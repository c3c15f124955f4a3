"""The verb `proteus plan`."""

from pathlib import Path
from typing import Any

import click

from proteus_spot.flows.cli.options import (
    allow_gaps_option,
    check_target,
    given_options,
    json_option,
    price_options,
    seed_option,
    state_options,
)
from proteus_spot.flows.terminal.output import notes, write_json
from proteus_spot.flows.terminal.progress_bar import progress
from proteus_spot.infra.errors import InputError

_HOURS = click.FloatRange(min=0, min_open=True)
_COUNT = click.IntRange(min=1)
_SECONDS = click.IntRange(min=0)


@click.command(short_help="Estimate the cost and time of a job before it is bought.")
@click.argument("job_file", required=False, type=click.Path(path_type=Path), metavar="[JOB.yaml]")
@click.option(
    "--vcpu-hours", type=_HOURS, metavar="W", help="Work of the job, in hours of one vCPU (GPU, by its unit)."
)
@click.option(
    "--hours", type=_HOURS, metavar="H", help="Or: the work of the cluster of --machines and --type in H hours."
)
@click.option(
    "--machines", type=_COUNT, metavar="N", help="Of the cluster on demand. Default: --max-vcpus, or 512 vCPUs."
)
@click.option("--type", "instance_type", metavar="TYPE", help="Their type. Default: the cheapest per vCPU.")
@click.option("--deadline", metavar="TIME",
              help="Maximum time of the job: hours, 90m or 12h, or a time with its zone.")  # fmt: skip
@click.option("--budget", "budget_usd", type=_HOURS, metavar="USD", help="Maximum cost of the job.")
@click.option("--max-vcpus", "max_spot_vcpus", type=_COUNT, metavar="VCPUS",
              help="Maximum spot vCPUs held. Default: 756 for 512 of the cluster.")  # fmt: skip
@click.option("--reliable", metavar="COUNTxTYPE", help="Reliable machines, on demand; 0: none. Default: 1 to 3.")
@click.option("--reliable-tier", metavar="FILE", help="JSON of the parameters to choose their number by: "
              "{model_bytes, ...}.")  # fmt: skip
@click.option("--lambda", "eviction_overhead_s", type=_SECONDS, metavar="SECONDS", help="Lost per eviction. [60]")
@click.option("--sigma", "resize_overhead_s", type=_SECONDS, metavar="SECONDS", help="Lost per resize. [20]")
@price_options()
@click.option("--leave-out", metavar="TYPE,...", help="Types excluded from bidding. [m1.small,t1.micro]")
@click.option("--from", "evaluate_from", metavar="TIME",
              help="Earliest start of jobs (UTC day or time); earlier prices are for the fit. "
              "Default: the last third.")  # fmt: skip
@click.option("--evictions", metavar="FILE",
              help="Eviction model of `proteus evictions fit`. Default: the paper's table, of the fit.")  # fmt: skip
@allow_gaps_option
@click.option("--scheme", "schemes", multiple=True, metavar="NAME,...",
              help="Schemes to compare. Default: on-demand,standard+checkpoint,proteus,best.")  # fmt: skip
@click.option("--starts", type=_COUNT, default=500, show_default=True, help="Jobs per scheme, and per market.")
@seed_option
@click.option("--live", is_flag=True, help="Plan JOB.yaml by what is known of its markets now, not by a price history.")
@state_options
@json_option()
@click.option("--picture", metavar="FILE", callback=check_target,
              help="Draw the distributions into a .png, .svg or .pdf.")  # fmt: skip
@click.pass_context
def plan(
    context: click.Context,
    /,
    job_file: Path | None,
    json_target: str | None,
    picture: str | None,
    live: bool,
    database: str | None,
    directory: Path | None,
    **asked: Any,
) -> None:
    """Estimate the cost and the time of a job under each scheme, before anything is bought.

    The job is simulated from many starts in the last part of the price history, by schemes fitted on the part before.
    JOB.yaml (as for `proteus submit`) gives markets, cap, reliable machines, overheads, budget and deadline, and the
    work if the job ends after hours; options override it. The last sentence says what happens when budget and deadline
    cannot both be kept. With --live the futures of JOB.yaml are drawn by what `proteus market` shows instead.

    \b
    Examples:
      proteus plan --prices prices.csv.gz --vcpu-hours 4000 --deadline 10 --budget 40 --picture plan.png
      proteus plan --prices prices.csv.gz --machines 16 --type m4.xlarge --hours 6 --reliable 1xm4.large
    """  # noqa: D301 - click reads the control character
    from proteus_spot.infra.clock import SystemClock
    from proteus_spot.reports.pictures.plan_pictures import check_picture
    from proteus_spot.studies.plan.plan_files import draw, plan_json
    from proteus_spot.studies.plan.plan_spec import plan_spec

    if live:
        if unused := given_options(context, *_OF_LIVE):
            raise InputError(f"--live: {unused[0]} has no effect, the plan is that of JOB.yaml; leave it out")
        _plan_live(job_file, json_target, database, directory, asked)
        return
    if database is not None or directory is not None:
        raise InputError("--database and --dir: have no effect without --live; leave them out")
    if picture is not None:
        check_picture(picture)
    spec = plan_spec(**_fields(job_file, asked))
    clock = SystemClock()
    began_s = clock.now_s()
    from proteus_spot.flows.terminal.plan_view import show
    from proteus_spot.studies.plan.planner import make_plan

    with progress() as report:
        made = make_plan(spec, report)
    notes(made.notes)
    if picture is not None:
        draw(picture, made)
    write_json(json_target, plan_json(made, clock.now_s() - began_s))
    if json_target != "-":
        show(made)
        if picture is not None:
            click.echo(f"written: {picture}")


#: Options that count with --live.
_OF_LIVE = ("live", "vcpu_hours", "starts", "seed", "catalog", "database", "directory", "json_target")


def _plan_live(
    job_file: Path | None, json_target: str | None, database: str | None, directory: Path | None, asked: dict[str, Any]
) -> None:
    from proteus_spot.flows.terminal.plan_view import show_live
    from proteus_spot.tasks.market.facts.planning import plan_live
    from proteus_spot.tasks.training.submission import read_job

    if job_file is None:
        raise click.UsageError("--live: plans the job of a file; name JOB.yaml")
    catalog = asked["catalog"]
    made = plan_live(
        read_job(job_file),
        str(job_file),
        vcpu_hours=asked["vcpu_hours"],
        starts=asked["starts"],
        seed=asked["seed"],
        catalog=None if catalog is None else Path(catalog),
        database=database,
        directory=directory,
    )
    write_json(json_target, made.to_record())
    if json_target != "-":
        show_live(made)


def _fields(job_file: Path | None, asked: dict[str, Any]) -> dict[str, Any]:
    """Return the values of the job file, overridden by the options given."""
    fields = {name: value for name, value in asked.items() if value is not None and value != ()}
    for name in ("leave_out", "schemes"):
        if name in fields:
            given = fields.pop(name)
            names = [given] if isinstance(given, str) else given
            fields["left_out" if name == "leave_out" else name] = [
                part.strip() for text in names for part in text.split(",") if part.strip()
            ]
    if "deadline" in fields:
        from proteus_spot.studies.plan.plan_spec import hours_to_deadline

        fields["deadline_h"] = hours_to_deadline("--deadline", fields.pop("deadline"))
    if "markets" in fields:
        fields["markets"] = list(fields["markets"])
    if job_file is not None:
        from proteus_spot.studies.plan.plan_spec import spec_of_job
        from proteus_spot.tasks.training.submission import read_job

        works = "vcpu_hours" in fields or "hours" in fields
        fields = spec_of_job(read_job(job_file), str(job_file), works=works) | fields
    if "reliable_tier" in fields:
        from proteus_spot.studies.backtest.backtest_spec import read_reliable_tier

        fields["reliable_tier"] = read_reliable_tier(fields["reliable_tier"])
    if fields.get("markets"):
        fields.setdefault("left_out", [])  # a market named by the user is bid in, whatever its type
    return fields
