"""Options that several verbs share: the application, how spot machines are charged, `--json`."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

_PARAM = click.option(
    "--param",
    "params",
    multiple=True,
    metavar="NAME=VALUE",
    help="Parameter of the application (repeat); VALUE is JSON where it can be read so, else text.",
)
_CODE = click.option(
    "--code",
    metavar="FILE",
    help="Path or URL of the .py file or wheel that holds module:Class. Default: module.py in this directory.",
)
_APP = click.option(
    "--app", default="mlr", show_default=True, metavar="NAME|module:Class", help="Application: built-in, or your own."
)


Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--billing",
        metavar="MODEL",
        default="hourly-refund",
        show_default=True,
        help="Or per-second-first-hour-free (EC2 today), or flat (a fixed price).",
    ),
    click.option(
        "--reprice", type=click.Choice(["hour", "change"]), help="per-second-…: when a new price counts. [hour]"
    ),
    click.option("--flat-price", metavar="USD", help="flat: the price per instance-hour."),
)
_MAX_LIFE = click.option("--max-life", metavar="H", help="flat: after so many hours every machine is taken.")


def charge_options(command: Command) -> Command:
    """Give a verb the options --billing, --reprice and --flat-price: what is charged for a life."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def billing_options(command: Command) -> Command:
    """Give a verb these and --max-life, where it also says when machines are taken."""
    return charge_options(_MAX_LIFE(command))


def app_options(command: Command) -> Command:
    """Add `--app`, `--code` and `--param`; the command gets `app`, `code` (or None) and `params` (texts)."""
    return _APP(code_options(command))


def code_options(command: Command) -> Command:
    """Add `--code` and `--param` to a command whose application is an argument."""
    return _CODE(_PARAM(command))


def json_option(what: str = "the result") -> Callable[[Command], Command]:
    """Return the option ``--json FILE``; `what` is what it writes."""
    return click.option(
        "--json", "json_target", metavar="FILE", help=f"Write {what} for machines; - is standard output."
    )
