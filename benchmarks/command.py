"""The verb `proteus bench`."""

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from proteus_spot.flows.cli.options import json_option
from proteus_spot.flows.terminal.output import write_json


class _NamesItsBenchmarks(click.Command):
    """A command whose help ends with the names of the benchmarks, which are loaded only for the help."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the names below the options."""
        from proteus_spot.benchmarks.runner import NAMES

        with formatter.section("Benchmarks"):
            for line in textwrap.wrap(", ".join(NAMES), formatter.width - 2, break_on_hyphens=False):
                formatter.write_text(line)


def _numbers(*allowed: int) -> Callable[[click.Context, click.Parameter, str | None], tuple[int, ...]]:
    """Return a callback that parses a comma-separated list of `allowed` numbers."""
    *others, last = map(str, allowed)

    def read(ctx: click.Context, option: click.Parameter, value: str | None) -> tuple[int, ...]:
        del ctx, option
        words = [] if value is None else value.split(",")
        for word in words:
            if word.strip() not in (*others, last):
                raise click.BadParameter(
                    f"{word!r}: give {', '.join(others)} or {last}, or several with commas between them"
                )
        return tuple(map(int, words))

    return read


def _parts(ctx: click.Context, option: click.Parameter, value: str | None) -> tuple[str, ...]:
    """Parse a comma-separated list of parts of `litz` or `nets`."""
    del ctx, option
    if value is None:
        return ()
    from proteus_spot.benchmarks.runner import parts_of

    known = parts_of()
    words = tuple(word.strip() for word in value.split(","))
    if unknown := [word for word in words if word not in known]:
        raise click.BadParameter(f"{unknown[0]!r}: give {', '.join(known)}, or several with commas between them")
    return words


@click.command(cls=_NamesItsBenchmarks, short_help="Measure Proteus against a peer or a limit.")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@json_option("the figures")
@click.option(
    "--nodes",
    metavar="N,…",
    callback=_numbers(16, 32, 64),
    help="For tiering, elasticity and scaling: 16, 32 or 64 nodes. [16]",
)
@click.option(
    "--figures",
    metavar="N,…",
    callback=_numbers(11, 12, 13, 14),
    help="For tiering: measure only these of the paper's figures 11 to 14.",
)
@click.option(
    "--examples",
    type=click.IntRange(min=1_000),
    metavar="N",
    help="For bgd: the size of its training set. [7000]",
)
@click.option(
    "--parts",
    metavar="NAME,…",
    callback=_parts,
    help="For litz or nets: measure only these of its parts, such as over-decomposition. [all]",
)
@click.option(
    "--pictures",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Draw the figures of these three, of sweep, revpred, bgd and litz.",
)
def bench(
    names: tuple[str, ...],
    json_target: str | None,
    nodes: tuple[int, ...],
    figures: tuple[int, ...],
    examples: int | None,
    parts: tuple[str, ...],
    pictures: Path | None,
) -> None:
    """Measure Proteus and a peer or a limit in one run, and print the ratio, for all or the named benchmarks.

    Run it on an idle machine: figures of a busy one mean nothing. The first line shows the load.
    """
    from proteus_spot.benchmarks.runner import NAMES, as_json, chosen, measure, show

    if unknown := [name for name in names if name not in NAMES]:
        raise click.UsageError(f"{unknown[0]}: is not a benchmark; give one of {', '.join(NAMES)}")
    names = tuple(chosen(names))
    found = measure(
        names,
        quiet=json_target == "-",
        nodes=nodes,
        paper_figures=figures,
        examples=examples,
        parts=parts,
        pictures=pictures,
        so_far=lambda found: write_json(json_target, as_json(found)) if json_target not in (None, "-") else None,
    )
    result: dict[str, Any] = as_json(found)
    write_json(json_target, result)
    if json_target != "-":
        show(found)
