"""The verb `proteus backtest`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from proteus_spot.flows.cli.job_options import JobCommand, billing_options
from proteus_spot.flows.cli.options import (
    allow_gaps_option,
    check_target,
    given_options,
    json_option,
    max_life_option,
    price_options,
    seed_option,
)
from proteus_spot.flows.terminal.backtest_view import show_outcomes, show_reliable, story_lines
from proteus_spot.flows.terminal.interrupts import explain_interrupt
from proteus_spot.flows.terminal.output import notes, write_json
from proteus_spot.flows.terminal.progress_bar import progress
from proteus_spot.infra.errors import InputError


class _NamesItsSchemes(JobCommand):
    """A command whose help ends with the names of the schemes, which are loaded only for the help."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the schemes below the options."""
        from proteus_spot.bidding.policies.fixed_delta import PATTERN
        from proteus_spot.studies.backtest.backtest_spec import NAMES

        with formatter.section("Schemes"):
            formatter.write_text(f"{', '.join(NAMES)}, {PATTERN}")


class _Numbers(click.ParamType[list[int]]):
    """Comma-separated positive integers."""

    name = "N,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[int]:
        """Return the numbers."""
        try:
            numbers = [int(part) for part in str(value).split(",")]
        except ValueError:
            self.fail(f"{value!r} is not a list of integers, as in 2,20", param, ctx)
        if min(numbers) < 1:
            self.fail(f"{min(numbers)} is below 1", param, ctx)
        return numbers


class _Names(click.ParamType[list[str]]):
    """Comma-separated names."""

    name = "NAME,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[str]:
        """Return the names."""
        return [part.strip() for part in str(value).split(",") if part.strip()]


_COUNT = click.IntRange(min=1)
_WHOLE = click.IntRange(min=0)


@click.command(cls=_NamesItsSchemes, short_help="Compare the costs of schemes on recorded prices.")
@price_options()
@click.option(
    "--leave-out", "left_out", type=_Names(), default="m1.small,t1.micro", show_default=True,
    help="Types excluded from bidding, as too small for a cluster.",
)  # fmt: skip
@click.option("--fit-from", metavar="TIME", help="Begin of the fit (UTC day or time). Default: the first price.")
@click.option("--fit-to", metavar="TIME", help="End of the fit; a day is included. Default: two thirds.")
@click.option("--from", "evaluate_from", metavar="TIME", help="Earliest start of jobs. Default: the fit's end.")
@click.option("--to", "evaluate_to", metavar="TIME", help="Latest end of jobs; a day is included. Default: all.")
@click.option("--evictions", metavar="FILE",
              help="Eviction model of `proteus evictions fit`. Default: the paper's table, of the fit.")  # fmt: skip
@click.option("--availability", multiple=True, metavar="TYPE/ZONE=FILE",
              help="When a market has capacity, at any bid (repeat). Default: always.")  # fmt: skip
@click.option("--availability-set", metavar="NAME",
              help="Instead, compare schemes with deadlines on a set of records of what could be had.")  # fmt: skip
@click.option("--begins", default="1970-01-01", show_default=True, metavar="TIME",
              help="When the availability traces begin; they carry no date.")  # fmt: skip
@click.option("--allow-overlap", is_flag=True, help="Let the fit overlap the evaluation; the result is then biased.")
@allow_gaps_option
@click.option(
    "--scheme",
    "schemes",
    multiple=True,
    metavar="NAME,...",
    help="Schemes to compare (repeat, or separate by commas). Default: all.",
)
@click.option("--zones", type=_Names(), default="each,all", show_default=True, help="each, all, or names of zones.")
@click.option(
    "--hours", type=_Numbers(), default="2,20", show_default=True, help="Job lengths on the reference cluster."
)
@click.option("--starts", type=_COUNT, default=1000, show_default=True, help="Jobs per scheme, zone and length.")
@seed_option
@billing_options
@max_life_option
@click.option("--lambda", "eviction_overhead_s", type=_WHOLE, default=60, show_default=True, metavar="SECONDS",
              help="Time lost per eviction, for schemes without their own overhead.")  # fmt: skip
@click.option("--sigma", "resize_overhead_s", type=_WHOLE, default=20, show_default=True, metavar="SECONDS",
              help="Time lost per change of the footprint, for the same schemes.")  # fmt: skip
@click.option(
    "--elasticity",
    "elasticities",
    multiple=True,
    metavar="FILE",
    help="JSON of the parameters of an elasticity: {model, ...} (repeat). Default: the paper's.",
)
@click.option("--checkpoint-interval", metavar="MINUTES|mean-time",
              help="Minutes between checkpoints, or by the mean time to eviction in the fit. Default: 30.")  # fmt: skip
@click.option("--machines", type=_COUNT, default=64, show_default=True, help="On-demand machines of the reference.")
@click.option("--machine-vcpus", type=_COUNT, default=8, show_default=True, help="vCPUs of one; unit of machine-hours.")
@click.option("--reference", "reference_type", metavar="TYPE", help="Their type. Default: the cheapest per vCPU.")
@click.option(
    "--max-vcpus", "max_spot_vcpus", type=_COUNT, default=756, show_default=True, help="Maximum spot vCPUs held."
)
@click.option("--allocation", "allocation_vcpus", type=_COUNT, default=128, show_default=True,
              help="vCPUs of one allocation.")  # fmt: skip
@click.option("--reliable", "reliable_count", type=_WHOLE, default=3, show_default=True, help="Reliable machines.")
@click.option("--reliable-vcpus", type=_COUNT, default=4, show_default=True, help="vCPUs of one reliable machine.")
@click.option("--reliable-counts", type=_Numbers(), default=None,
              help="Also compare these numbers of reliable machines, in their own table.")  # fmt: skip
@click.option("--reliable-tier", metavar="FILE", help="JSON of the parameters of that table: {model_bytes, ...}.")
@click.option("--ceiling/--no-ceiling", default=True, show_default=True, help="Never bid above on-demand prices.")
@click.option("--threads", type=_COUNT, help="Threads to compute with. Default: all cores.")
@click.option("--explain", metavar="START", help="Instead, print the events of the one job that starts then.")
@json_option()
@click.option("--csv", "csv_target", type=click.Path(path_type=Path), metavar="FILE", callback=check_target,
              help="Write the table as CSV.")  # fmt: skip
@click.option("--report", "report_target", type=click.Path(path_type=Path), metavar="FILE", callback=check_target,
              help="Write a .html report.")  # fmt: skip
@click.pass_context
def backtest(
    context: click.Context,
    /,
    threads: int | None,
    explain: str | None,
    availability_set: str | None,
    json_target: str | None,
    csv_target: Path | None,
    report_target: Path | None,
    elasticities: tuple[str, ...],
    reliable_counts: list[int] | None,
    reliable_tier: str | None,
    job: Mapping[str, Any],
    **asked: Any,
) -> None:
    """Compare the costs and run times of schemes on recorded prices.

    Each scheme is fitted on the fit months only, and runs the same jobs, which start at random in later months: in each
    zone alone, and in all together. Costs and run times are relative to the reference cluster, bought on demand.

    \b
    Examples:
      proteus backtest --prices prices.csv.gz --catalog catalog.csv \\
        --fit-from 2015-03-11 --fit-to 2015-04-30 --from 2015-05-01 --to 2015-05-31 --report out.html
      proteus backtest --prices prices.csv.gz --scheme proteus --explain 2015-05-03T12:00
      proteus backtest --availability-set gcp-2025-10-h100
    """  # noqa: D301 - click reads the control character
    from proteus_spot.studies.backtest.backtest_spec import backtest_spec, read_elasticity, read_reliable_tier

    if availability_set is not None:
        _on_records(context, availability_set, asked["starts"], asked["seed"], json_target)
        return
    asked |= job["transient"]
    fields = {name: list(value) if isinstance(value, tuple) else value for name, value in asked.items()}
    fields["schemes"] = [name.strip() for names in fields["schemes"] for name in names.split(",")]
    fields["elasticity"] = [read_elasticity(name) for name in elasticities]
    fields["reliable_counts"] = reliable_counts or []
    fields["reliable_tier"] = {} if reliable_tier is None else read_reliable_tier(reliable_tier)
    if reliable_tier is not None and reliable_counts is None:
        raise InputError(f"--reliable-tier {reliable_tier}: has no effect alone; add --reliable-counts 1,2,3")
    if explain is not None and reliable_counts is not None:
        raise InputError("--explain: shows one job; --reliable-counts is for the table, leave it out")
    if explain is not None:
        if csv_target is not None or report_target is not None:
            raise InputError("--explain: shows one job; --csv and --report are for the table, leave them out")
        _explain(context, fields, explain, json_target)
        return
    _compare(backtest_spec(**fields), threads, json_target, csv_target, report_target)


#: Options that count with --availability-set.
_OF_RECORDS = ("availability_set", "starts", "seed", "json_target")


def _on_records(context: click.Context, name: str, starts: int, seed: int, json_target: str | None) -> None:
    from proteus_spot.flows.terminal.availability_view import show_availability
    from proteus_spot.studies.availability import AvailabilitySpec, availability_figures

    if unused := given_options(context, *_OF_RECORDS):
        raise InputError(
            f"--availability-set {name}: {unused[0]} has no effect on records of availability; leave it out"
        )
    chosen = {"seed": seed}
    if context.get_parameter_source("starts") is click.core.ParameterSource.COMMANDLINE:
        chosen["starts"] = starts
    with progress() as report:
        result = availability_figures(AvailabilitySpec(name, **chosen), report)
    write_json(json_target, result)
    if json_target != "-":
        show_availability(result)


def _compare(
    spec: Any,
    threads: int | None,
    json_target: str | None,
    csv_target: Path | None,
    report_target: Path | None,
) -> None:
    from proteus_spot.studies.backtest.backtest_page import write_report
    from proteus_spot.studies.backtest.comparison import Comparison
    from proteus_spot.studies.backtest.result_tables import write_csv

    with progress() as report:
        with explain_interrupt("nothing was written"):
            comparison = Comparison(spec, threads=threads, report=report)
            notes(comparison.field.notes)
            comparison.run()
        result = comparison.result
        if csv_target is not None:
            write_csv(str(csv_target), result["runs"])
        if report_target is not None:
            report(1, 1, f"drawing {report_target}")
            write_report(report_target, comparison.field, comparison.spec, comparison.runs, result)
    write_json(json_target, result)
    if json_target != "-":
        show_outcomes(result)
        if "reliable" in result:
            show_reliable(result["reliable"])
        for target in (csv_target, report_target):
            if target is not None:
                click.echo(f"written: {target}")


def _explain(context: click.Context, fields: dict[str, Any], start: str, json_target: str | None) -> None:
    """Show one job; options that select several cells by default select one, or must be given."""
    from proteus_spot.bidding.backtest.clairvoyant.bound import CLAIRVOYANT
    from proteus_spot.bidding.backtest.schemes.scheme_registry import SCHEMES
    from proteus_spot.studies.backtest.backtest_inputs import at_interval, open_inputs
    from proteus_spot.studies.backtest.backtest_spec import ALL, backtest_spec
    from proteus_spot.studies.backtest.explain import explainer
    from proteus_spot.studies.backtest.job_runs import Cell
    from proteus_spot.studies.backtest.job_story import job_story, story_json
    from proteus_spot.studies.times import moment_s

    def by_default(name: str) -> bool:
        return context.get_parameter_source(name) is click.core.ParameterSource.DEFAULT

    if by_default("zones"):
        fields["zones"] = [ALL]
    if by_default("hours"):
        fields["hours"] = fields["hours"][:1]
    spec = backtest_spec(**fields)
    if len(spec.schemes) != 1 or spec.schemes == [CLAIRVOYANT] or len(spec.zones) != 1 or len(spec.hours) != 1:
        raise InputError(
            f"--explain {start}: shows one job; give one --scheme of {', '.join(SCHEMES)}, one of --zones and one of "
            "--hours"
        )
    start_s = moment_s("--explain", start)
    with progress() as report:
        field, spec = at_interval(open_inputs(spec, report), spec)
        cell = Cell(spec.schemes[0], spec.zones[0], spec.hours[0])
        story = job_story(field, spec, cell, start_s, explainer(field, spec, cell, start_s))
    notes(field.notes)
    write_json(json_target, story_json(story))
    if json_target != "-":
        story_lines(story)
