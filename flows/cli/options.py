"""Options shared by several verbs: application, billing model, prices, state, `--json`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

scale_in_option = click.option(
    "--scale-in",
    type=click.Choice(["auto", "on", "off"]),
    default="auto",
    show_default=True,
    help="Have fewer servers, and offer nodes for release, as the memory falls. auto: if the application says that it "
    "may, as lda.",
)
nan_option = click.option(
    "--nan",
    type=click.Choice(["fail", "allow"]),
    default="fail",
    show_default=True,
    help="What a number means that is not finite, in the model, an update or a loss: the job fails, or goes on.",
)
_PARAM = click.option(
    "--param",
    "params",
    multiple=True,
    metavar="NAME=VALUE",
    help="Parameter of the application (repeat); VALUE is parsed as JSON if possible, else taken as text.",
)
_CODE = click.option(
    "--code",
    metavar="FILE",
    help="Path or URL of the .py file or wheel with module:Class. Default: module.py in this directory.",
)
_DATABASE = click.option(
    "--database", metavar="URL", help="State database. Default: the run's, else PROTEUS_DATABASE_URL."
)
_DIR = click.option("--dir", "directory", type=click.Path(path_type=Path), help="Directory with the run's state.")


_LABEL = click.option(
    "--label", default="", metavar="NAME", help="Column of the labels of a CSV. Default: by its name, else the last."
)
_EMPTY = click.option(
    "--empty",
    type=click.Choice(["refuse", "drop", "mean"]),
    default="refuse",
    show_default=True,
    help="Cells without a value: an error; leave their rows out; fill in the mean of the column.",
)

Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--billing",
        metavar="MODEL",
        default="hourly-refund",
        show_default=True,
        help="Billing model: hourly-refund, per-second-first-hour-free (EC2 today) or flat (a fixed price).",
    ),
    click.option(
        "--reprice", type=click.Choice(["hour", "change"]), help="per-second-…: when a new price counts. [hour]"
    ),
    click.option("--flat-price", metavar="USD", help="flat: the price per instance-hour."),
)
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
_MAX_LIFE = click.option("--max-life", metavar="H", help="flat: hours after which every machine is evicted.")


def charge_options(command: Command) -> Command:
    """Add `--billing`, `--reprice` and `--flat-price`, which define the charges of an allocation."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def billing_options(command: Command) -> Command:
    """Add the options of `charge_options` and `--max-life`, for a verb that also simulates evictions."""
    return charge_options(_MAX_LIFE(command))


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


def table_options(command: Command) -> Command:
    """Add `--label` and `--empty`, which say how a table of examples is read."""
    return _LABEL(_EMPTY(command))


def code_options(command: Command) -> Command:
    """Add `--code` and `--param`; the command gets `code` (or None) and `params` (texts)."""
    return _CODE(_PARAM(command))


def state_options(command: Command) -> Command:
    """Add `--database` and `--dir`; the command gets `database` and `directory`, each None if not given."""
    return _DATABASE(_DIR(command))


def json_option(what: str = "the result") -> Callable[[Command], Command]:
    """Return the option ``--json FILE``; `what` names the content of the file."""
    return click.option("--json", "json_target", metavar="FILE", help=f"Write {what} as JSON; - is standard output.")


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
