"""The verb `proteus sweep submit`."""

from pathlib import Path

import click

from proteus_spot.flows.cli.options import json_option
from proteus_spot.flows.terminal.interrupts import explain_interrupt
from proteus_spot.flows.terminal.output import notes, write_json


@click.command(short_help="Submit a sweep file (YAML) to the Prefect server.")
@click.argument("sweep_file", type=click.Path(path_type=Path))
@click.option("--sweep-id", metavar="ID", help="Id of a sweep to go on with. Default: a new one of its name.")
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    help="Directory of a running `proteus up`. Default: the server at PREFECT_API_URL, else runs/up.",
)
@json_option()
def submit(sweep_file: Path, sweep_id: str | None, directory: Path | None, json_target: str | None) -> None:
    """Submit the sweep of SWEEP_FILE (YAML) to a Prefect server: that of `proteus up`, or at PREFECT_API_URL.

    It is a new sweep each time, with an id of its name and the flow run's; with --sweep-id it goes on with that one.
    """
    from proteus_spot.tasks.sweeps.given_sweep import check_asked, read_asked
    from proteus_spot.tasks.sweeps.sweep_checks import check_import
    from proteus_spot.tasks.sweeps.sweep_submission import submit_sweep
    from proteus_spot.tasks.training.submission import prefect_server

    spec = read_asked(sweep_file, sweep_id)
    check_asked(spec, sweep_file)
    check_import(spec, f"{sweep_file}: ", is_here=False)
    unknown = f"whether sweep {spec.sweep} was submitted is not known; `proteus jobs` shows it"
    with explain_interrupt(unknown), prefect_server(directory) as server:
        done = submit_sweep(spec)
        notes(server.warnings())
        write_json(json_target, done)
        if json_target != "-":
            click.echo(f"sweep {done['sweep_id']} was submitted as flow run {done['flow_run']} ({done['flow_run_id']})")
            click.echo(f"its run:  {done['run_url']}")
            click.echo(f"to stop it: proteus sweep stop {done['sweep_id']}")
