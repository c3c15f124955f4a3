"""The verb `proteus panic`."""

from dataclasses import asdict
from pathlib import Path

import click

from proteus_spot.flows.cli.options import json_option
from proteus_spot.flows.terminal.interrupts import explain_interrupt
from proteus_spot.flows.terminal.output import write_json
from proteus_spot.flows.terminal.tables import Column, show_table
from proteus_spot.infra.errors import InputError, ProteusError


@click.command(short_help="End all machines of this owner, now.")
@click.option("--owner", metavar="ID", help="Owner id. Default: the recorded one of the state database or run.")
@click.option("--dir", "directory", type=click.Path(path_type=Path), help="Directory of a local run that is under way.")
@json_option("what was ended")
def panic(owner: str | None, directory: Path | None, json_target: str | None) -> None:
    """End all machines of this owner in the region, without controller, Prefect or database, and without a question.

    No model is saved; jobs go on from their last checkpoints. Machines of other owners are never touched. Without an
    owner id, list the owners that tags name, and end nothing.
    """
    from proteus_spot.tasks.panic import panic as end_all

    quiet = json_target == "-"
    with explain_interrupt("some machines may live on; run `proteus panic` again"):
        result = end_all(owner, directory, lambda line: click.echo(line, err=quiet))
    write_json(json_target, asdict(result))
    if result.owner is None:
        if not quiet:
            rows = [(name, str(count)) for name, count in sorted(result.owners.items())]
            show_table((Column("owner"), Column("machines", right=True)), rows, caption=f"living in {result.region}")
        raise InputError("no owner id is recorded for this state database; name one: proteus panic --owner ID")
    if not quiet:
        click.echo(f"{len(result.machines)} machines of owner {result.owner} in {result.region} have ended")
        click.echo("a worker or run that is still running may buy others: stop it, then its jobs (`proteus stop JOB`)")
    if result.doubts:
        raise ProteusError(f"machines may live on: {'; '.join(result.doubts)}; see the console of EC2")
