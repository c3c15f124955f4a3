"""How far something is, as a bar on a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

if TYPE_CHECKING:
    from tasks.market_data.traces import Report


@contextmanager
def progress() -> Iterator[Callable[[int, int, str], None]]:
    """Give a function (done, of how many, what comes next) that shows it on a terminal; nothing elsewhere, and nothing that stays."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as shown:
        bar = shown.add_task("", total=None)

        def report(done: int, of: int, what: str) -> None:
            shown.update(bar, completed=done, total=of, description=what)

        yield report


@contextmanager
def bar() -> "Iterator[Report]":
    """Show on a terminal how far it is, on standard error; nothing elsewhere, and nothing that stays."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=None)

        def report(done: int, of: int, what: str) -> None:
            progress.update(task, completed=done, total=of, description=what)

        yield report
