"""Record of a sweep: `python -m proteus_spot.benchmarks.papers.sweeps.record SWEEP.yaml RECORD.npz`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from proteus_spot.flows.terminal.interrupts import Interrupted

if TYPE_CHECKING:
    from proteus_spot.tasks.sweeps.local_sweep import LocalProgress


@click.command(short_help="Train each setting once, and record curves and step times.")
@click.argument("sweep", metavar="SWEEP.yaml", type=click.Path(path_type=Path))
@click.argument("target", metavar="RECORD.npz", type=click.Path(path_type=Path))
@click.option(
    "--dir", "directory", type=click.Path(path_type=Path), help="Directory of the state. Default: runs/record-SWEEP."
)
def record(sweep: Path, target: Path, directory: Path | None) -> None:
    """Train every setting of a sweep once on this machine, to its last step, and write curves and step times.

    A simulation replays the record on any prices (`proteus bench sweep`). Trials are trained one after another, so that
    step times are not those of a crowded machine. Ctrl-C saves the trial; the same command goes on from there.

    \b
    Example:
      python -m proteus_spot.benchmarks.papers.sweeps.record sweep.yaml digits.npz
    """
    from proteus_spot.benchmarks.papers.sweeps.recording import record_trials, save_record
    from proteus_spot.studies.output_files import check_file_target
    from proteus_spot.tasks.local_market.run_checks import check_directory
    from proteus_spot.tasks.sweeps.given_sweep import check_asked
    from proteus_spot.tasks.sweeps.sweep_spec import read_sweep

    spec = read_sweep(sweep)
    check_asked(spec, sweep)
    check_file_target("RECORD.npz", target)
    folder = (directory or Path("runs") / f"record-{spec.job_id}").absolute()
    check_directory("--dir", folder)
    states: dict[int, str] = {}
    stopped_by: list[int] = []

    def tell(progress: "LocalProgress") -> None:
        if states.get(progress.trial) != progress.state:
            states[progress.trial] = progress.state
            click.echo(f"trial-{progress.trial:02d} {progress.state}, step {progress.steps}", err=True)

    found = record_trials(spec, folder, tell, stopped_by.append)
    if found is None:
        error = Interrupted(stopped_by[0])
        error.outcome = f"every trial is saved in {folder}; the same command goes on"
        raise error
    save_record(target, found)
    variation = f"{float(found.step_cov.mean()):.2g} on average, {float(found.step_cov.max()):.2g} at most"
    click.echo(
        f"{target}: {found.trials} trials of {found.steps} steps; {found.step_s.mean():.3g} s a step, with a "
        f"coefficient of variation of {variation}"
    )


if __name__ == "__main__":
    record()
