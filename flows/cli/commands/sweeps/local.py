"""The verb `proteus sweep local`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from proteus_spot.flows.cli.options import json_option
from proteus_spot.flows.terminal.interrupts import Interrupted
from proteus_spot.flows.terminal.output import write_json
from proteus_spot.infra.errors import JobFailed

if TYPE_CHECKING:
    from proteus_spot.tasks.sweeps.local_sweep import LocalProgress


@click.command(short_help="Run a sweep on this machine, without a market.")
@click.argument("sweep", metavar="SWEEP.yaml", type=click.Path(path_type=Path))
@click.option(
    "--dir", "directory", type=click.Path(path_type=Path), help="Directory of the state. Default: runs/SWEEP."
)
@json_option()
def local(sweep: Path, directory: Path | None, json_target: str | None) -> None:
    """Train all trials of a sweep as processes of this machine, as many at once as it has processors.

    The trials, their seeds and the stopping rule are those of `proteus sweep run`; markets, budget and deadline play no
    part. Ctrl-C saves every trial; the same command goes on from there. A sweep that has ended shows its figures again.

    \b
    Examples:
      proteus sweep local sweep.yaml
      proteus sweep local sweep.yaml --dir runs/digits --json -
    """  # noqa: D301 - click reads the control character
    from proteus_spot.infra.local_market.environment import own_directory
    from proteus_spot.tasks.local_market.run_checks import check_directory
    from proteus_spot.tasks.sweeps.local_sweep import LocalSweep
    from proteus_spot.tasks.sweeps.sweep_checks import check_import
    from proteus_spot.tasks.sweeps.sweep_spec import read_sweep

    spec = read_sweep(sweep)
    folder = (directory or Path("runs") / spec.job_id).absolute()
    check_directory("--dir", folder)
    states: dict[int, str] = {}

    def tell(progress: "LocalProgress") -> None:
        if states.get(progress.trial) != progress.state:
            states[progress.trial] = progress.state
            click.echo(_line(progress, spec.metric.name), err=True)

    run = LocalSweep(spec, folder, tell)
    if run.check(f"{sweep}: "):
        check_import(spec, f"{sweep}: ", is_here=True)
    with own_directory(folder):
        run.open()
        if not run.run():
            error = Interrupted(run.signal_number)
            error.outcome = f"every trial is saved in {folder}; the same command goes on"
            raise error
        view, best = run.view(), run.save_best()
        figures = run.result()
    write_json(json_target, figures)
    if json_target != "-":
        from proteus_spot.flows.terminal.sweep_lines import show_view

        show_view(view)
        click.echo(_summary(figures, spec.metric.name, best))
    if best is None and figures["state"] == "failed":
        raise JobFailed(f"sweep {spec.job_id}: {figures['why']}")


def _line(progress: "LocalProgress", metric: str) -> str:
    at = "" if progress.value is None else f", step {progress.steps}: {metric} {progress.value:.6g}"
    setting = ", ".join(f"{name}={value}" for name, value in progress.params.items())
    return f"trial-{progress.trial:02d} ({setting}) {progress.state}{at}{f' ({progress.why})' if progress.why else ''}"


def _summary(figures: dict[str, Any], metric: str, saved: Path | None) -> str:
    best = figures["best"]
    if best is None:
        return f"{figures['sweep_id']} {figures['state']}: no trial has a value"
    setting = ", ".join(f"{name} {value}" for name, value in best["params"].items())
    value = f"best {metric} {best['value']:.6g} at step {best['steps']} ({setting})"
    notes = [value, *([] if saved is None else [f"its state is in {saved}"]), *filter(None, [figures["why"]])]
    return f"{figures['sweep_id']} {figures['state']}: {'; '.join(notes)}"
