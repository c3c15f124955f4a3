"""The verb `proteus bench`."""

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from flows.cli.options import json_option
from flows.terminal.output import write_json


class _NamesItsBenchmarks(click.Command):
    """A command whose help ends with the benchmarks that there are, which are looked up only then."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the names below the options."""
        from benchmarks.runner import NAMES

        with formatter.section("Benchmarks"):
            for line in textwrap.wrap(", ".join(NAMES), formatter.width - 2, break_on_hyphens=False):
                formatter.write_text(line)


def _numbers(*known: int) -> Callable[[click.Context, click.Parameter, str | None], tuple[int, ...]]:
    """Return what reads numbers with commas between them, some of those that are `known`."""
    *others, last = map(str, known)

    def read(ctx: click.Context, option: click.Parameter, value: str | None) -> tuple[int, ...]:
        del ctx, option
        told = [] if value is None else value.split(",")
        for one in told:
            if one.strip() not in (*others, last):
                raise click.BadParameter(
                    f"{one!r}: give {', '.join(others)} or {last}, or several with commas between them"
                )
        return tuple(map(int, told))

    return read


@click.command(cls=_NamesItsBenchmarks, short_help="Figures of ours beside a peer or a limit.")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@json_option("the figures")
@click.option(
    "--nodes",
    metavar="N,…",
    callback=_numbers(16, 32, 64),
    help="For tiering, elasticity and scaling: 16, 32 or 64 nodes; 16.",
)
@click.option(
    "--figures",
    metavar="N,…",
    callback=_numbers(11, 12, 13, 14),
    help="For tiering: those of the paper's figures 11 to 14 alone.",
)
@click.option("--pictures", metavar="DIR", type=click.Path(path_type=Path), help="Draw what these three measure.")
def bench(
    names: tuple[str, ...],
    json_target: str | None,
    nodes: tuple[int, ...],
    figures: tuple[int, ...],
    pictures: Path | None,
) -> None:
    """Measure ours and a peer or a limit in one run, and print the ratio; all benchmarks, or those that are named.

    Run it on a machine that does nothing else: figures of a busy one mean nothing, and the first line says the load.
    """
    from benchmarks.runner import NAMES, as_json, measure, show
    from tasks.output_files import check_file_target

    if unknown := [name for name in names if name not in NAMES]:
        raise click.UsageError(f"{unknown[0]}: is no benchmark; there are {', '.join(NAMES)}")
    if json_target not in (None, "-"):
        check_file_target("--json", Path(json_target))
    found = measure(names or NAMES, quiet=json_target == "-", nodes=nodes, paper_figures=figures, pictures=pictures)
    result: dict[str, Any] = as_json(found)
    write_json(json_target, result)
    if json_target != "-":
        show(found)
