"""Options shared by several verbs: prices, markets, state, `--json`."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from proteus_spot.infra.clock import SystemClock
from proteus_spot.infra.processes.surroundings import proteus_command

_DATABASE = click.option(
    "--database", metavar="URL", help="State database. Default: the run's, else PROTEUS_DATABASE_URL."
)
_DIR = click.option("--dir", "directory", type=click.Path(path_type=Path), help="Directory with the run's state.")
Command = TypeVar("Command", bound=Callable[..., Any])
Target = TypeVar("Target", str | None, Path | None)
_PATH = click.Path(path_type=Path)

#: Options of a price file, and of the instance types, which it does not describe.
catalog_option = click.option("--catalog", metavar="FILE", help="CSV of instance types. Default: the shipped one.")
product_option = click.option(
    "--product", metavar="NAME", help="Product to read from a file with several, as in 'Linux/UNIX'."
)
_REGION = click.option("--region", metavar="NAME", help="Only the markets of this region.")
#: Options of simulated jobs.
allow_gaps_option = click.option(
    "--allow-gaps", is_flag=True, help="Hold the last prices over gaps of more than two days."
)
seed_option = click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Seed of the start times and of a generated market.",
)
max_life_option = click.option("--max-life", metavar="H", help="flat: hours after which every machine is evicted.")


def price_options(
    prices: str = " Default: generated.", markets: str = "Bid here only (repeat). Default: all."
) -> Callable[[Command], Command]:
    """Return the options `--prices`, `--catalog`, `--region`, `--product` and `--market`; the command gets `markets`.

    Parameters
    ----------
    prices : text that the help of `--prices` appends to the form of the file.
    markets : help of `--market`.
    """
    options = (
        click.option("--prices", metavar="FILE", help=f"Price file, as read by `proteus traces describe`.{prices}"),
        catalog_option,
        _REGION,
        product_option,
        click.option("--market", "markets", multiple=True, metavar="TYPE/ZONE", help=markets),
    )

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def market_options(directory: str) -> Callable[[Command], Command]:
    """Return the options of a run over a market of this machine; the verb gets the fields of a `LocalRun`.

    Parameters
    ----------
    directory : the default of `--dir`, in its help.
    """
    options = (
        click.option(
            "--scale",
            type=click.FloatRange(min=1),
            show_default="60, or less where ticks are kept only so",
            help="Market seconds per real second.",
        ),
        click.option("--prices", type=_PATH, help="Price file to replay. Default: a generated market."),
        click.option("--catalog", type=_PATH, help="CSV of instance types. Default: the shipped one."),
        click.option(
            "--availability",
            multiple=True,
            metavar="TYPE/ZONE=FILE",
            help="When a market has capacity, at any bid (repeat); the trace begins with the run.",
        ),
        click.option(
            "--endpoint", metavar="URL", help="A running EC2-compatible endpoint. Default: one started by the run."
        ),
        click.option("--dir", "directory", type=_PATH, help=f"Directory of the state. Default: {directory}."),
        click.option("--database", metavar="URL", help="State database. Default: a SQLite file in --dir."),
    )

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def state_options(command: Command) -> Command:
    """Add `--database` and `--dir`; the command gets `database` and `directory`, each None if not given."""
    return _DATABASE(_DIR(command))


def check_target(_: click.Context, option: click.Parameter, target: Target) -> Target:
    """Refuse an output file that cannot be written, before the work; ``-`` is standard output."""
    if target is not None and str(target) != "-":
        from proteus_spot.studies.output_files import check_file_target

        check_file_target(option.opts[0], Path(target))
    return target


def json_option(what: str = "the result") -> Callable[[Command], Command]:
    """Return the option ``--json FILE``; `what` names the content of the file."""
    return click.option(
        "--json",
        "json_target",
        metavar="FILE",
        callback=check_target,
        help=f"Write {what} as JSON; - is standard output.",
    )


def new_job_id(verb: str) -> str:
    """Return the id of a job to which the user gives none."""
    return f"{verb}-{datetime.fromtimestamp(SystemClock().now_s(), UTC):%Y%m%d-%H%M%S}"


def command_again(*words: str, directory: Path) -> str:
    """Return the command that goes on with a job: `words`, which have its id, its directory and the options given."""
    given = given_options(click.get_current_context(), "job_id", "sweep_id", "directory")
    return proteus_command(*words, "--dir", str(directory), *given)


def given_options(context: click.Context, *without: str) -> tuple[str, ...]:
    """Return the options given on the command line, as its words, in the order of the help and except `without`."""
    words: list[str] = []
    for parameter in context.command.params:
        name = parameter.name or ""
        typed = context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        if not typed or name in without or not isinstance(parameter, click.Option):
            continue
        value = context.params[name]
        if parameter.is_flag:
            words.append((parameter.opts if value else parameter.secondary_opts)[0])
        else:
            for item in value if parameter.multiple else (value,):
                words += [
                    parameter.opts[0],
                    f"{item:.0f}" if isinstance(item, float) and item.is_integer() else str(item),
                ]
    return tuple(words)
