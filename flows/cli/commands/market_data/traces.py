"""The verbs `proteus traces …`: describe, generate and convert price files."""

from typing import Any

import click

from proteus_spot.flows.cli.options import catalog_option, json_option, product_option
from proteus_spot.flows.terminal.output import write_json
from proteus_spot.flows.terminal.progress_bar import progress
from proteus_spot.flows.terminal.traces_view import show, span, title
from proteus_spot.infra.errors import InputError

_DEFAULT_TYPES = "c4.large,c4.xlarge,m4.large,r3.large"
_DEFAULT_ZONES = "us-east-1a,us-east-1b"


@click.group(short_help="Describe, generate and convert price files.")
def traces() -> None:
    """Describe, generate and convert price files.

    A price file is a CSV `timestamp,instance_type,az,product,price` (plain or gzipped), Parquet of the same columns, or
    the output of `aws ec2 describe-spot-price-history`, as JSON or text; a path, or a URL such as
    s3://bucket/prices.parquet.
    """


_region = click.option(
    "--region", metavar="NAME", help="Read only the markets, or the price list's rows, of this region."
)


@traces.command("describe", short_help="Show the contents of price files as a table and a picture.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@catalog_option
@_region
@product_option
@click.option(
    "--market", "markets", multiple=True, metavar="TYPE/ZONE", help="Read only this market (repeat). Default: all."
)
@json_option("the figures")
@click.option("--picture", "plot", metavar="FILE", help="Draw the prices of one price file: .png, .svg or .pdf.")
def describe_files(
    files: tuple[str, ...],
    catalog: str | None,
    region: str | None,
    product: str | None,
    markets: tuple[str, ...],
    json_target: str | None,
    plot: str | None,
) -> None:
    """Show the contents of price files: a table of the markets, and a picture.

    The mean is weighted by time. A spike is a rise above the on-demand price of the catalogue. A second table describes
    the behaviour of the prices: their level, how often and how far they rise, and whether the past predicts rises.
    Several files are shown one after the other, because the letters of zones differ between accounts.

    \b
    Example:
      proteus traces describe prices.csv.gz --picture prices.png
    """  # noqa: D301 - click reads the control character
    from proteus_spot.studies.market_data.trace_files import draw, open_traces
    from proteus_spot.studies.market_data.trace_summary import describe

    if plot is not None and len(files) > 1:
        raise InputError(f"--picture {plot}: one picture shows one file; give a single FILE")
    summaries = []
    with progress() as report:
        for done, name in enumerate(files):
            report(done, len(files), f"reading {name}")
            found, instance_types = open_traces(name, catalog=catalog, region=region, product=product, wanted=markets)
            summaries.append(describe(name, found, instance_types))
            if plot is not None:
                report(done, len(files), f"drawing {plot}")
                draw(plot, title(summaries[-1]), found, instance_types)
    # Nothing is shown before every file is read: bad input leaves no partial output.
    if json_target != "-":
        for summary in summaries:
            show(summary)
        if plot is not None:
            click.echo(f"picture: {plot}")
    write_json(json_target, {"files": [summary.as_json() for summary in summaries]})


@traces.command("generate", short_help="Generate the prices of a seeded market.")
@click.argument("out")
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="The same seed gives the same market."
)
@click.option("--days", type=float, default=90.0, show_default=True, help="Length of the market.")
@click.option("--types", default=_DEFAULT_TYPES, show_default=True, help="Instance types, comma-separated.")
@click.option("--zones", default=_DEFAULT_ZONES, show_default=True, help="Zones, comma-separated.")
@click.option(
    "--climate",
    type=click.Choice(["typical", "lively", "rush-hours"]),
    default="typical",
    show_default=True,
    help="Like the real markets of 2015 and 2016, or with an eviction in nearly any two hours.",
)
@click.option(
    "--from",
    "begin",
    type=click.DateTime(["%Y-%m-%d"]),
    default="2016-06-01",
    show_default=True,
    help="First day (UTC).",
)
@catalog_option
@_region
@json_option("what was made")
def generate_prices(out: str, json_target: str | None, **options: Any) -> None:
    """Generate the prices of a seeded market similar to the real ones, and write them to OUT.

    The ending of OUT sets the form: .csv, .csv.gz, .parquet, .json or .json.gz.

    \b
    Example:
      proteus traces generate market.csv.gz --seed 7 --days 30 --types c4.large,m4.large --climate lively
    """  # noqa: D301 - click reads the control character
    from proteus_spot.studies.market_data.trace_files import generate_file

    options["types"], options["zones"] = (_listed(options[name]) for name in ("types", "zones"))
    options["begin"] = options["begin"].date()
    with progress() as report:
        made = generate_file(out, report=report, **options)
    _say_written(json_target, out, made)


@traces.command("convert", short_help="Convert a price file, or a price list into a catalogue.")
@click.argument("paths", nargs=-1, required=True, metavar="[IN] OUT")
@product_option
@click.option("--price-list", metavar="FILE", help="Make a catalogue from EC2's offer file (index.csv or index.json).")
@_region
@json_option("what was made")
def convert(
    paths: tuple[str, ...], product: str | None, price_list: str | None, region: str | None, json_target: str | None
) -> None:
    """Convert the price file IN into OUT, or AWS's price list into a catalogue.

    The ending of OUT sets the form: .csv, .csv.gz, .parquet, .json or .json.gz; a catalogue is .csv or .csv.gz.

    \b
    Examples:
      aws ec2 describe-spot-price-history --product-descriptions Linux/UNIX > history.json
      proteus traces convert history.json prices.parquet
      proteus traces convert --price-list index.csv --region us-east-1 catalog.csv
    """  # noqa: D301 - click reads the control character
    from proteus_spot.studies.market_data.trace_files import convert_price_list, convert_prices

    if price_list is None:
        if len(paths) != 2:
            raise InputError(f"traces convert: want IN and OUT, not {len(paths)} name{'s' * (len(paths) != 1)}")
        if region is not None:
            raise InputError("--region: is for --price-list; a price file is taken whole")
        with progress() as report:
            made = convert_prices(paths[0], paths[1], product=product, report=report)
        _say_written(json_target, paths[1], made)
        return
    if len(paths) != 1 or product is not None:
        raise InputError("traces convert --price-list FILE: want OUT alone besides, and no --product")
    with progress() as report:
        types, ambiguous = convert_price_list(price_list, paths[0], region=region, report=report)
    if json_target != "-":
        click.echo(f"{paths[0]}: {types} instance types")
        if ambiguous:
            more = f" and {len(ambiguous) - 5} more" if len(ambiguous) > 5 else ""
            click.echo(f"left out, for they have several prices: {', '.join(ambiguous[:5])}{more}")
    write_json(json_target, {"file": paths[0], "types": types, "left_out": list(ambiguous)})


def _listed(text: str) -> list[str]:
    """Return the names between commas, each once."""
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def _say_written(json_target: str | None, out: str, made: Any) -> None:
    events = sum(len(trace) for trace in made.values())
    if json_target != "-":
        click.echo(f"{out}: {len(made)} markets, {events:,} events, {span(made.first_s, made.last_s)}")
    write_json(
        json_target,
        {"file": out, "markets": len(made), "events": events, "from_s": made.first_s, "until_s": made.last_s},
    )
