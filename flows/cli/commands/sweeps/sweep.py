"""The group of verbs `proteus sweep …`."""

import click

from proteus_spot.flows.cli.commands.sweeps.local import local
from proteus_spot.flows.cli.commands.sweeps.report_sweep import report
from proteus_spot.flows.cli.commands.sweeps.run_sweep import run
from proteus_spot.flows.cli.commands.sweeps.show import show
from proteus_spot.flows.cli.commands.sweeps.stop_sweep import stop
from proteus_spot.flows.cli.commands.sweeps.submit_sweep import submit

#: The verbs, in the order of the help: `run`, `local`, `submit`, `show`, `stop`, `report`.
VERBS: tuple[click.Command, ...] = (run, local, submit, show, stop, report)


@click.group(short_help="Search hyper-parameters on spot machines.")
def sweep() -> None:
    """Train many settings of a model on spot machines, each on a machine of its own, and keep the best.

    A sweep is described by a file, sweep.yaml (docs/sweeps.md).
    """


for verb in VERBS:
    sweep.add_command(verb)
