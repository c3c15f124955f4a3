"""The verbs `proteus evictions …`: fit, show and check eviction models."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from proteus_spot.flows.cli.options import json_option, price_options
from proteus_spot.flows.terminal.output import write_json
from proteus_spot.flows.terminal.progress_bar import progress
from proteus_spot.infra.errors import InputError

if TYPE_CHECKING:
    from proteus_spot.studies.market_data.eviction_sources import Sources


@click.group(short_help="Fit, show and check eviction models.")
def evictions() -> None:
    """Fit eviction models, show them, and check them on later months.

    A model gives the probability that a bid survives a number of minutes, by market and by the distance of the bid to
    the price.
    """


_SOURCES = (
    price_options(prices="", markets="Read only this market (repeat)."),
    click.option(
        "--availability",
        multiple=True,
        metavar="[TYPE/ZONE=]FILE",
        help="Availability trace, for `capacity` (repeat). Default of the market: from the file name, ZONE_TYPE.json.",
    ),
    click.option(
        "--begins",
        default="1970-01-01",
        show_default=True,
        metavar="TIME",
        help="When the availability traces begin; they carry no date.",
    ),
    click.option("--from", "from_time", metavar="TIME", help="Begin of the data (UTC day or time). Default: all."),
    click.option("--to", "to_time", metavar="TIME", help="End of the data; a day is included. Default: all."),
    json_option("the figures"),
)


def _sources(command: Any) -> Any:
    """Add the options of the data to fit or to check on."""
    for option in reversed(_SOURCES):
        command = option(command)
    return command


@evictions.command("fit", short_help="Fit a model of the lifetimes of bids.")
@click.option("--model", "name", metavar="NAME", help="table, survival, conditioned or capacity. [survival]")
@click.option("--predictor", metavar="NAME", help="Instead of a model: table, logistic, tributary or revpred.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the training of predictors.")
@click.option("--out", metavar="FILE", help="File, as in model.npz. Default of predictors: where sweeps look for them.")
@click.option("--advisor", metavar="FILE", help="Interruption bands of EC2's spot advisor (JSON), for `capacity`.")
@click.option("--open-band", type=float, default=0.3, show_default=True, help="Share taken of the advisor's last band.")
@_sources
def fit(
    name: str | None,
    predictor: str | None,
    seed: int,
    out: str | None,
    open_band: float,
    from_time: str | None,
    to_time: str | None,
    json_target: str | None,
    **sources: Any,
) -> None:
    """Fit a model of the lifetimes of bids, and write it to a file.

    \b
    table        the paper's: eviction probability within the hour, and median time to eviction
    survival     share of bids that survive each minute of the first hour, and on to a day
    conditioned  the same, given the price level, the age of the price and the time above the bid
    capacity     for evictions that do not depend on bids: an advisor's bands, or availability traces

    With --predictor, a model of each market says whether the price passes a bid within the hour, given the present. It
    is fitted to the first four fifths of the data and checked on the last. Sweeps ask it, and a job may name its file
    as `evictions`.

    \b
    Examples:
      proteus evictions fit --predictor revpred --prices prices.csv.gz --market r3.large/us-east-1c
      proteus evictions fit --model conditioned --prices prices.csv.gz --to 2016-03-31 --out model.npz
      proteus evictions fit --model capacity --advisor advisor.json --market m5.large/us-east-1a --out model.npz
    """  # noqa: D301 - click reads the control character
    from proteus_spot.infra.market_data.eviction_model_files import write_model
    from proteus_spot.studies.market_data.eviction_models import fit_model
    from proteus_spot.studies.market_data.eviction_sources import Sources

    if predictor is not None:
        if name is not None:
            raise InputError("evictions fit: give --model or --predictor, not both")
        _fit_predictor(predictor, out, from_time, to_time, seed, json_target, Sources(**sources))
        return
    if out is None:
        raise InputError("evictions fit: want --out FILE, as in --out model.npz")
    _check_target("--out", out)
    with progress() as report:
        model = fit_model(
            name or "survival",
            Sources(**sources),
            from_time=from_time,
            to_time=to_time,
            open_band=open_band,
            report=report,
        )
        report(0, 1, f"writing {out}")
        write_model(Path(out), model)
    if json_target != "-":
        fitted = "" if model.fitted is None else f", fitted on {model.fitted} UTC"
        states = "" if model.n_states == 1 else f", {model.n_states} states each"
        click.echo(f"{out}: {model.name}, {len(model.markets)} markets{states}{fitted}")
    fitted_on = None if model.fitted is None else {"from_s": model.fitted.from_s, "until_s": model.fitted.until_s}
    write_json(
        json_target,
        {
            "file": out,
            "model": model.name,
            "markets": len(model.markets),
            "states": model.n_states,
            "deltas": len(model.curves.deltas_micros),
            "fitted": fitted_on,
        },
    )


def _fit_predictor(
    name: str,
    out: str | None,
    from_time: str | None,
    to_time: str | None,
    seed: int,
    json_target: str | None,
    sources: "Sources",
) -> None:
    from proteus_spot.flows.terminal.evictions_view import show_fit
    from proteus_spot.infra.market_data.eviction_model_files import write_model
    from proteus_spot.studies.market_data.predictors import fit_and_check, keep_predictors, predictor_url

    target = predictor_url(name) if out is None else out
    _check_target("--out", out)
    with progress() as report:
        found = fit_and_check(name, sources, from_time=from_time, to_time=to_time, seed=seed, report=report)
        report(0, 1, f"writing {target}")
        if out is None:
            keep_predictors(found.model)
        else:
            write_model(Path(out), found.model)
    if json_target != "-":
        show_fit(target, found)
    write_json(json_target, {"file": target, **found.to_json()})


@evictions.command("show", short_help="Show a model as a table and a picture.")
@click.argument("file")
@click.option("--picture", metavar="FILE", help="Draw the survival curves: .png, .svg or .pdf.")
@json_option("the figures")
def show(file: str, picture: str | None, json_target: str | None) -> None:
    """Show a model: the eviction probabilities of bids, and of a conditioned model the effect of each condition.

    \b
    Example:
      proteus evictions show model.npz --picture model.png
    """  # noqa: D301 - click reads the control character
    from proteus_spot.bidding.evictions.summary import summary
    from proteus_spot.flows.terminal.evictions_view import show_model
    from proteus_spot.studies.market_data.eviction_models import draw_model, open_model

    _check_target("--picture", picture)
    model = open_model(file)
    found = summary(model)
    if picture is not None:
        draw_model(picture, file, model)
    if json_target != "-":
        show_model(file, found)
        if picture is not None:
            click.echo(f"picture: {picture}")
    write_json(json_target, {"file": file, **found.to_json()})


@evictions.command("check", short_help="Check models on later months.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@_sources
@click.option("--allow-overlap", is_flag=True, help="Let the check overlap the fit; the result is then biased.")
@click.option("--picture", metavar="FILE", help="Draw observed over predicted shares: .png, .svg or .pdf.")
def check(
    files: tuple[str, ...],
    from_time: str | None,
    to_time: str | None,
    allow_overlap: bool,
    picture: str | None,
    json_target: str | None,
    **sources: Any,
) -> None:
    """Check models on later months: Brier scores and reliability of "evicted within 15 minutes" and "within the hour".

    Every minute counts as one bid for each of the paper's deltas, in each market of a model. Every further model is
    compared with the first.

    \b
    Example:
      proteus evictions check table.npz conditioned.npz --prices prices.csv.gz --from 2016-04-01
    """  # noqa: D301 - click reads the control character
    from proteus_spot.flows.terminal.evictions_view import show_check
    from proteus_spot.studies.market_data.eviction_models import check_models, draw_check
    from proteus_spot.studies.market_data.eviction_sources import Sources

    _check_target("--picture", picture)
    if len(set(files)) < len(files):
        raise InputError("evictions check: name each FILE once")
    with progress() as report:
        found = check_models(
            files,
            Sources(**sources),
            from_time=from_time,
            to_time=to_time,
            allow_overlap=allow_overlap,
            report=report,
        )
    if picture is not None:
        draw_check(picture, found)
    for warning in found.warnings:
        click.echo(f"warning: {warning}", err=True)
    if json_target != "-":
        show_check(found)
        if picture is not None:
            click.echo(f"picture: {picture}")
    write_json(json_target, found.to_json())


def _check_target(option: str, target: str | None) -> None:
    """Refuse an unusable target before the work, not after."""
    if target in (None, "-") or "://" in str(target):
        return
    from proteus_spot.studies.output_files import check_file_target

    check_file_target(option, Path(str(target)))
    if option == "--picture":
        from proteus_spot.reports.pictures.evictions_pictures import check_picture_name

        check_picture_name(str(target))
