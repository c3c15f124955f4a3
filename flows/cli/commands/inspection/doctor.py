"""The verb `proteus doctor`."""

import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from proteus_spot.flows.cli.options import json_option
from proteus_spot.flows.terminal.interrupts import explain_interrupt
from proteus_spot.flows.terminal.output import write_json
from proteus_spot.infra.errors import InputError, ProteusError

if TYPE_CHECKING:
    from proteus_spot.tasks.doctor.checks import Finding
    from proteus_spot.tasks.doctor.setup import Setup


@click.command(short_help="Say what is missing or wrong in this set-up, with the fix.")
@click.argument("job_file", required=False, type=click.Path(path_type=Path), metavar="[JOB.yaml]")
@click.option("--step", type=click.IntRange(1, 6), help="Only the checks of this step of docs/aws.md.")
@click.option("--boot", is_flag=True, help="Also buy one machine, and see it join and end. Its price is shown first.")
@click.option("--budget", type=click.FloatRange(min=0), metavar="USD", help="Of --boot. Default: asked.")
@json_option("the findings")
def doctor(job_file: Path | None, step: int | None, boot: bool, budget: float | None, json_target: str | None) -> None:
    """Check this set-up, and say what is missing or wrong, with the fix of each.

    Checked are versions, credentials, clock, catalogue, network, bucket, image, permissions, quotas, state database and
    Prefect server, by the settings in the environment. Nothing is bought without --boot. With JOB.yaml, markets,
    machines and quotas are those of the job. The exit code is 1 if something is wrong.
    """
    from proteus_spot.infra.settings import load_settings
    from proteus_spot.tasks.doctor.checks import BOOT_STEP, examine
    from proteus_spot.tasks.doctor.setup import Setup
    from proteus_spot.tasks.training.submission import read_job

    if budget is not None and not boot:
        raise InputError("--budget: is the budget of --boot; give both")
    if step == BOOT_STEP and not boot:
        raise InputError(f"--step {BOOT_STEP}: boots a machine, which costs money; add --boot")
    most_spent = None if budget is None else _micros(budget)
    setup = Setup(load_settings(), None if job_file is None else read_job(job_file))
    quiet = json_target == "-"
    findings = []
    for found in _all(examine(setup, step), setup, boot, most_spent, quiet):
        findings.append(found)
        if not quiet:
            click.echo(f"{'good ' if found.good else 'WRONG'}  {found.check}: {found.what}")
            if found.fix:
                click.echo(f"       fix: {found.fix}")
    write_json(json_target, {"findings": [asdict(found) for found in findings]})
    if wrong := [found.check for found in findings if not found.good]:
        raise ProteusError(f"{len(wrong)} of {len(findings)} checks found something wrong: {', '.join(wrong)}")


def _all(
    findings: "Iterable[Finding]", setup: "Setup", boots: bool, most_spent: int | None, quiet: bool
) -> "Iterable[Finding]":
    yield from findings
    if boots:
        yield _boot(setup, most_spent, quiet)


def _micros(budget: float) -> int:
    from proteus_spot.bidding.market.money import to_micros

    try:
        return to_micros(budget)
    except ValueError:
        raise InputError(f"--budget {budget:g}: is not an amount; write dollars, as in 0.5") from None


def _boot(setup: "Setup", most_spent: int | None, quiet: bool) -> "Finding":
    from proteus_spot.bidding.market.money import usd
    from proteus_spot.tasks.doctor.boot import boot, highest_cost
    from proteus_spot.tasks.doctor.checks import BOOT_STEP, finding

    most = highest_cost(setup)
    click.echo(f"one {setup.reliable} on demand for at most 15 minutes costs at most {usd(most)}", err=quiet)
    if most_spent is None:
        if not sys.stdin.isatty():
            raise InputError("--budget: nobody can be asked for it here; give it")
        budget = click.prompt("budget in dollars", type=click.FloatRange(min=0), err=True)
        most_spent = _micros(budget)
    with explain_interrupt("the machine ends by itself within 15 minutes, or by `proteus panic`"):
        return finding("boot", BOOT_STEP, lambda: boot(setup, most_spent, lambda line: click.echo(line, err=quiet)))
