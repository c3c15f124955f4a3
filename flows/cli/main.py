"""The command `proteus`. Every verb parses its options, calls one function, and reports an error in one line.

Exit code 0: done; 1: failed; 2: bad input, nothing bought or written; 130 or 143: ended by a signal. Verbs import what
they run lazily, so that `--help` is quick and Prefect reads its settings only after the verb has set them.
"""

import errno
import itertools
import os
import re
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import NoReturn

import click

from proteus_spot.flows.cli.commands.inspection.cost import cost
from proteus_spot.flows.cli.commands.inspection.doctor import doctor
from proteus_spot.flows.cli.commands.inspection.logs import logs
from proteus_spot.flows.cli.commands.inspection.metrics import metrics
from proteus_spot.flows.cli.commands.inspection.report import report
from proteus_spot.flows.cli.commands.jobs.jobs import jobs
from proteus_spot.flows.cli.commands.jobs.panic import panic
from proteus_spot.flows.cli.commands.jobs.stop import stop
from proteus_spot.flows.cli.commands.jobs.submit import submit
from proteus_spot.flows.cli.commands.jobs.up import up
from proteus_spot.flows.cli.commands.market_data.catalog import catalog
from proteus_spot.flows.cli.commands.market_data.evictions import evictions
from proteus_spot.flows.cli.commands.market_data.market import market
from proteus_spot.flows.cli.commands.market_data.traces import traces
from proteus_spot.flows.cli.commands.planning.backtest import backtest
from proteus_spot.flows.cli.commands.planning.bill import bill
from proteus_spot.flows.cli.commands.planning.plan import plan
from proteus_spot.flows.cli.commands.sweeps.sweep import sweep
from proteus_spot.flows.cli.commands.training.check import check
from proteus_spot.flows.cli.commands.training.predict import predict
from proteus_spot.flows.cli.commands.training.run import run
from proteus_spot.flows.cli.commands.training.train import train
from proteus_spot.flows.terminal.interrupts import Interrupted, interruptible
from proteus_spot.flows.terminal.standard_streams import guard_standard_streams
from proteus_spot.infra.errors import ProteusError
from proteus_spot.infra.masking import masked
from proteus_spot.infra.processes.surroundings import settle
from proteus_spot.infra.urls import at_home

#: Benchmarks stand above flows, some measure them: their verb is found by its name.
bench: click.Command = import_module("proteus_spot.benchmarks.command").bench

#: The verbs by group, in the order of the help.
GROUPS: Mapping[str, tuple[click.Command, ...]] = MappingProxyType(
    {
        "Training": (run, train, check, predict, sweep),
        "Planning": (plan, backtest, bill),
        "Jobs on a Prefect server": (up, submit, jobs, stop, panic),
        "Inspection": (report, cost, logs, metrics, doctor),
        "Market data": (market, traces, catalog, evictions),
        "Measuring": (bench,),
    }
)


#: Error numbers for a name that no file can have.
_BAD_NAMES = frozenset({errno.ENAMETOOLONG, errno.ELOOP})
#: An input of any length must not make the error line long: words of 400 characters and more are cut at 300.
_LONG_WORD = re.compile(r"(\S{300})\S{100,}")


class _GroupedVerbs(click.Group):
    """A command whose help lists its verbs by group."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words, each path with its ``~`` expanded: shells expand it neither behind a ``=`` nor in quotes."""
        return super().parse_args(ctx, [_expanded(word) for word in args])

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section per group."""
        width = max(len(verb.name or "") for verbs in GROUPS.values() for verb in verbs)
        for title, verbs in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl(
                    [((verb.name or "").ljust(width), verb.get_short_help_str(formatter.width)) for verb in verbs]
                )


def _expanded(word: str) -> str:
    option, equals, value = word.partition("=")
    return f"{option}{equals}{at_home(value)}" if option.startswith("--") else at_home(word)


def _show_version(context: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        from proteus_spot.infra.version import program_commit, program_version

        click.echo(f"proteus, version {program_version()}, commit {program_commit()}")
        context.exit()


@click.group(cls=_GroupedVerbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and the commit, and exit.",
)
def cli() -> None:
    """Train models on machines that can be taken away at any moment, for a fraction of the price."""


for verb in itertools.chain.from_iterable(GROUPS.values()):
    cli.add_command(verb)


def main() -> None:
    """Run the command; turn every error into one line and an exit code."""
    settle()
    guard_standard_streams()
    try:
        with interruptible():
            cli.main(prog_name="proteus", standalone_mode=False)
            sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(2)
    except click.ClickException as error:
        _leave(2, error.format_message())
    except ProteusError as error:
        _leave(error.exit_code, str(error))
    except Interrupted as error:
        _leave(error.exit_code, f"interrupted: {error.outcome or 'nothing was bought'}")
    except BrokenPipeError:
        os._exit(1)  # the reader has closed the pipe
    except (KeyboardInterrupt, click.exceptions.Abort):
        _leave(130, "interrupted: nothing was bought")
    except OSError as error:
        if error.errno in _BAD_NAMES:
            _leave(2, f"{error.filename}: {error.strerror}; give another name")
        if error.errno != errno.ENOSPC:
            _show_fault()
        _leave(1, f"{error.strerror}: {error.filename or Path.cwd()}; free some, and run it again")
    except Exception:  # noqa: BLE001 - a bug of Proteus: print the traceback and end with an exit code, as for any error
        _show_fault()


def _show_fault() -> NoReturn:
    sys.stderr.write(masked(traceback.format_exc()))
    _leave(1, "internal error; the lines above say where")


def _leave(code: int, line: str) -> NoReturn:
    """Print one line and end at once, without waiting for the threads of running flows."""
    shown = _LONG_WORD.sub(lambda word: f"{word[1]}…", " ".join(masked(line).split()))
    print(f"proteus: {shown}", file=sys.stderr, flush=True)
    with suppress(ProteusError, OSError):  # the line above already reports the error
        sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
