"""The options that say how spot machines are charged, alike for every verb that asks."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

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
