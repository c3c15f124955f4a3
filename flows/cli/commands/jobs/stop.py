"""The verb `proteus stop`."""

from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from proteus_spot.flows.cli.options import json_option, state_options
from proteus_spot.flows.terminal.interrupts import explain_interrupt
from proteus_spot.flows.terminal.output import notes, write_json
from proteus_spot.flows.terminal.tables import show_lines

if TYPE_CHECKING:
    from proteus_spot.tasks.supervision.stop_answer import StopAnswer


@click.command(short_help="End a job after its current clock and save the model.")
@click.argument("job")
@click.option("--reason", default="asked to stop", show_default=True, help="Written into the job's result.")
@click.option("--now", "at_once", is_flag=True, help="End its machines at once, with a checkpoint if there is time.")
@state_options
@json_option("the answer")
def stop(
    job: str, reason: str, at_once: bool, database: str | None, directory: Path | None, json_target: str | None
) -> None:
    """End JOB: nothing more is bought, the model is saved after the current clock, and the machines go.

    Ticks carry this out, also where no controller answers. The answer names each machine that stays, until when and
    why. JOB may be a local run in another terminal. Exit code 1: machines that were to end at once may still live.
    """
    from proteus_spot.tasks.local_market.run_environment import environment_variables
    from proteus_spot.tasks.supervision.stop_answer import stop_job

    of_database = nullcontext() if database is None else environment_variables({"PROTEUS_DATABASE_URL": database})
    with (
        explain_interrupt(f"whether job {job} is to stop is not known; `proteus jobs` shows it; stop may be repeated"),
        of_database,
    ):
        answer = stop_job(job, reason, database, directory, at_once=at_once)
    record = asdict(answer)
    write_json(json_target, {"job": record.pop("job_id"), **record})
    notes(answer.notes)
    if json_target != "-":
        show_lines(*_lines(answer))
    if answer.failed:
        raise click.exceptions.Exit(1)


def _lines(answer: "StopAnswer") -> list[str]:
    why = f" ({answer.why})" if answer.why else ""
    lines = [f"job {answer.job_id} is {answer.state}{why}"]
    lines += [f"{name} was ended" for name in answer.ended]
    lines += [str(machine) for machine in answer.stays]
    if not answer.stays:
        lines.append(
            "no machine of it is left" if answer.ended or answer.state != "stopping" else "it holds no machine"
        )
    return [*lines, *answer.next]
