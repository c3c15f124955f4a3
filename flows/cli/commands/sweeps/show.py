"""The verb `proteus sweep show`."""

from pathlib import Path

import click

from proteus_spot.flows.cli.options import json_option, state_options
from proteus_spot.flows.terminal.interrupts import Interrupted, explain_interrupt
from proteus_spot.flows.terminal.output import write_json


@click.command(short_help="Show a sweep and its trials, or follow it.")
@click.argument("sweep")
@click.option("--follow", "-f", is_flag=True, help="Show it until it ends, or Ctrl-C.")
@state_options
@json_option()
def show(sweep: str, follow: bool, database: str | None, directory: Path | None, json_target: str | None) -> None:
    """Show SWEEP: its state, what it has cost, and its trials, the best first.

    With --follow, the table is live on a terminal; elsewhere a line is printed every few seconds. SWEEP is the id of a
    sweep of the state database, or of a local run in runs/.
    """
    from proteus_spot.tasks.sweeps.sweep_page import find_sweep
    from proteus_spot.tasks.sweeps.sweep_state import sweep_figures

    if follow:
        _follow(sweep, database, directory, quiet=json_target == "-")
    from proteus_spot.flows.terminal.sweep_lines import show_view

    view = find_sweep(sweep, database, directory)
    write_json(json_target, sweep_figures(view, curves=True))
    if json_target != "-":
        show_view(view)


def _follow(sweep: str, database: str | None, directory: Path | None, quiet: bool) -> None:
    from proteus_spot.flows.terminal.sweep_lines import SweepProgress
    from proteus_spot.infra.clock import SystemClock
    from proteus_spot.tasks.sweeps.sweep_page import follow_views

    clock, display = SystemClock(), SweepProgress(quiet)
    try:
        with explain_interrupt(f"sweep {sweep} is no longer followed here; it continues"):
            for view in follow_views(sweep, database, directory):
                display.show(view, clock.now_s())
    except (KeyboardInterrupt, Interrupted) as error:
        if getattr(error, "exit_code", 130) != 130:  # Ctrl-C is how following ends
            raise
    finally:
        display.close()
