"""``python -m benchmarks [NAME…]``: run the benchmarks, or those that are named; print each beside its peer or limit."""

import importlib
import json
import os
import tempfile
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from benchmarks.figure import Figure

NAMES = ("prices", "tick", "backtest", "endpoint", "engine")
#: Columns, where there is no terminal that says how many.
_WIDTH = 132


def _number(value: float) -> str:
    return f"{value:,.4f}" if value < 1 else f"{value:,.2f}"


def _table(figures: list[Figure]) -> Table:
    table = Table(
        title="ours beside a peer or a limit: medians, and the range of the repetitions", title_justify="left"
    )
    for name in ("benchmark", "what", "ours", "beside it", "which is", "ours / it"):
        table.add_column(name, justify="right" if name in ("ours", "beside it", "ours / it") else "left")
    for one in figures:
        spread = " to ".join(map(_number, one.ours_spread))
        table.add_row(
            one.benchmark,
            f"{one.what}\n[dim]{one.note}[/]" if one.note else one.what,
            f"{_number(one.ours)} {one.unit}\n[dim]{spread}[/]",
            f"{_number(one.beside)} {one.unit}",
            one.beside_is,
            f"{one.ratio:.3g}",
        )
    return table


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", nargs=-1, type=click.Choice(NAMES))
@click.option("--json", "json_target", type=click.Path(path_type=Path), help="Write the figures for machines.")
def main(names: tuple[str, ...], json_target: Path | None) -> None:
    """Run the benchmarks, or those that are NAMED."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH)
    chosen = names or NAMES
    console.print(f"benchmarks: {', '.join(chosen)}; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    figures: list[Figure] = []
    for name in chosen:
        with tempfile.TemporaryDirectory(prefix="proteus-bench-") as scratch:
            figures += importlib.import_module(f"benchmarks.{name}").run(Path(scratch))
    console.print(_table(figures))
    if json_target is not None:
        records = [asdict(one) | {"ratio": one.ratio} for one in figures]
        json_target.write_text(json.dumps({"cores": os.cpu_count(), "figures": records}, indent=2) + "\n")


if __name__ == "__main__":
    main()
