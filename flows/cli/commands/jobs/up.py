"""The verb `proteus up`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from proteus_spot.flows.cli.options import json_option
from proteus_spot.flows.terminal.interrupts import interruptible
from proteus_spot.flows.terminal.output import write_json


@click.command(short_help="Keep a Prefect server and all deployments running on this machine.")
@click.option("--dir", "directory", type=click.Path(path_type=Path), help="Directory of the state. Default: runs/up.")
@click.option(
    "--scale",
    type=click.FloatRange(min=1),
    show_default="60, or less where ticks are kept only so",
    help="Market seconds per real second.",
)
@click.option("--seed", type=click.IntRange(min=0), help="Seed of the market. Default: that of the directory, else 0.")
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    help="Port of the Prefect server. Default: that of the last time, else a free one.",
)
@json_option("the addresses, once jobs can be submitted,")
def up(json_target: str | None, **options: Any) -> None:
    """Keep a Prefect server, a worker, a simulated spot market and all deployments running until Ctrl-C.

    In another terminal, `proteus submit JOB.yaml` in the same directory finds the server. Nothing is left running at
    the end; the same command goes on with the jobs that were under way.
    """
    with interruptible() as interrupts:
        from proteus_spot.flows.local_market.standing_market import local_up

        def say(text: str) -> None:
            click.echo(text, err=json_target == "-")

        def ready(announcement: Mapping[str, Any]) -> None:
            write_json(json_target, dict(announcement))
            say("ready: `proteus submit JOB.yaml` in another terminal; Ctrl-C ends all of it")

        local_up(**options, interrupts=interrupts, say=say, ready=ready)
