"""The command ``proteus bench [NAME…]``: it runs benchmarks and prints their figures."""

import importlib
import importlib.util
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click
from rich.table import Table

from proteus_spot.benchmarks.figure import Figure
from proteus_spot.flows.terminal.tables import output_console
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.extras import missing_of, need_extra

#: {name on the command line: its module}.
_MODULES = MappingProxyType(
    {
        "prices": "proteus_spot.benchmarks.market.prices",
        "availability": "proteus_spot.benchmarks.market.availability",
        "tick": "proteus_spot.benchmarks.market.tick",
        "backtest": "proteus_spot.benchmarks.market.backtest",
        "endpoint": "proteus_spot.benchmarks.market.endpoint",
        "engine": "proteus_spot.benchmarks.training.engine",
        "data-plane": "proteus_spot.benchmarks.data_plane.data_plane",
        "train": "proteus_spot.benchmarks.training.train",
        "train-mf": "proteus_spot.benchmarks.training.train_mf",
        "train-lda": "proteus_spot.benchmarks.training.train_lda",
        "controller": "proteus_spot.benchmarks.many_nodes.controller",
        "tiering": "proteus_spot.benchmarks.papers.many_nodes.tiering",
        "elasticity": "proteus_spot.benchmarks.papers.many_nodes.elasticity",
        "scaling": "proteus_spot.benchmarks.papers.many_nodes.scaling",
        "revpred": "proteus_spot.benchmarks.papers.sweeps.revpred",
        "earlycurve": "proteus_spot.benchmarks.papers.sweeps.earlycurve",
        "sweep": "proteus_spot.benchmarks.papers.sweeps.sweep",
        "bgd": "proteus_spot.benchmarks.papers.bgd.bgd",
        "litz": "proteus_spot.benchmarks.papers.litz.litz",
        "nets": "proteus_spot.benchmarks.nets.nets",
    }
)
NAMES = tuple(_MODULES)
#: Those of the papers, which are in a clone and not in the wheel.
_PAPERS = "proteus_spot.benchmarks.papers"
#: What a benchmark, or the peer next to it, needs beyond the core of the installation.
_EXTRAS = MappingProxyType(
    {
        "endpoint": ("local",),
        "train": ("sweeps",),
        "revpred": ("neural",),
        "earlycurve": ("sweeps",),
        "sweep": ("sweeps", "neural"),
        "bgd": ("sweeps",),
    }
)
#: Benchmarks with a selectable number of nodes.
OF_MANY_NODES = ("tiering", "elasticity", "scaling")
#: Benchmarks whose parts can be selected.
OF_PARTS = ("litz", "nets")
#: Benchmarks that draw a picture.
DRAWN = (*OF_MANY_NODES, "sweep", "revpred", "bgd", "litz")


def _number(value: float) -> str:
    return f"{value:,.4f}" if value < 1 else f"{value:,.2f}"


def _table(figures: list[Figure]) -> Table:
    table = Table(title="ours and a peer or a limit: medians, and the range of the repetitions", title_justify="left")
    for name in ("benchmark", "what", "ours", "reference", "which is", "ours / reference"):
        table.add_column(name, justify="right" if name in ("ours", "reference", "ours / reference") else "left")
    for one in figures:
        spread = " to ".join(map(_number, one.ours_spread))
        table.add_row(
            one.benchmark,
            "\n".join([one.what, *(f"[dim]{line}[/]" for line in (one.verdict, one.note) if line)]),
            f"{_number(one.ours)} {one.unit}\n[dim]{spread}[/]",
            f"{_number(one.beside)} {one.unit}",
            one.beside_is,
            f"{one.ratio:.3g}",
        )
    return table


def measure(
    names: Sequence[str],
    *,
    quiet: bool = False,
    nodes: Sequence[int] = (),
    paper_figures: Sequence[int] = (),
    examples: int | None = None,
    parts: Sequence[str] = (),
    pictures: Path | None = None,
    so_far: Callable[[list[Figure]], None] = lambda figures: None,
) -> list[Figure]:
    """Run benchmarks, each in a separate scratch folder; print each figure to stderr once it is measured.

    Parameters
    ----------
    nodes : numbers of nodes of the benchmarks of many nodes; none: the default of each.
    paper_figures : figures of the paper whose layouts `tiering` measures; none: all.
    examples : size of the training set of `bgd`; none: its default.
    parts : names of the parts of `litz` or `nets` to measure; none: all.
    pictures : folder for the pictures, which are named after the benchmarks.
    so_far : called with all figures after each, so that a run that is broken off leaves those that it has measured.
    """
    if not quiet:
        output_console().print(f"benchmarks: {', '.join(names)}; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    figures: list[Figure] = []
    for name in names:
        with tempfile.TemporaryDirectory(prefix="proteus-bench-") as scratch:
            options: dict[str, Any] = {}
            if name in OF_MANY_NODES:
                options = {"nodes": tuple(nodes)} if nodes else {}
            if name in DRAWN:
                options["picture"] = None if pictures is None else pictures / f"{name}.png"
            if name == "tiering" and paper_figures:
                options["figures"] = tuple(paper_figures)
            if name == "bgd" and examples is not None:
                options["examples"] = examples
            if name in OF_PARTS:
                options["parts"] = tuple(parts)
            module = importlib.import_module(_MODULES[name])
            for one in module.run(Path(scratch), **options):
                # Printed immediately: the rest may take half an hour, or fail.
                verdict = one.verdict and f"; {one.verdict}"
                click.echo(
                    f"{one.what}: {one.ours:.4g} {one.unit}, {one.beside_is} {one.beside:.4g}{verdict}", err=True
                )
                figures.append(one)
                so_far(figures)
    return figures


def chosen(names: Sequence[str]) -> Sequence[str]:
    """Return the named benchmarks, or all that are installed and have what they need.

    Raises
    ------
    InputError
        If a named one is not installed, or lacks an extra.
    """
    is_clone = importlib.util.find_spec(_PAPERS) is not None
    found = [name for name in names or NAMES if is_clone or not _MODULES[name].startswith(_PAPERS)]
    if missing := [name for name in names if name not in found]:
        raise InputError(f"bench {missing[0]}: repeats a paper's figures, and is in a clone of the repository alone")
    for name in names:
        for extra in _EXTRAS.get(name, ()):
            need_extra(extra, f"bench {name}")
    return [name for name in found if not any(map(missing_of, _EXTRAS.get(name, ())))]


def parts_of() -> tuple[str, ...]:
    """Return the names of the parts that can be selected, of all benchmarks that are installed."""
    is_clone = importlib.util.find_spec(_PAPERS) is not None
    names = [name for name in OF_PARTS if is_clone or not _MODULES[name].startswith(_PAPERS)]
    return tuple(part for name in names for part in importlib.import_module(_MODULES[name]).PARTS)


def show(figures: list[Figure]) -> None:
    """Print the figures."""
    output_console().print(_table(figures))


def as_json(figures: list[Figure]) -> dict[str, Any]:
    """Return the figures as a JSON-able dict."""
    return {
        "cores": os.cpu_count(),
        "figures": [asdict(one) | {"ratio": one.ratio, "holds": one.holds} for one in figures],
    }
