"""Progress bar on standard error."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


@contextmanager
def progress() -> Iterator[Callable[[int, int, str], None]]:
    """Yield a function (done, total, next step) that updates a progress bar on standard error.

    The bar is shown only on a terminal, and is removed at the end.
    """
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as shown:
        bar = shown.add_task("", total=None)

        def report(done: int, total: int, what: str) -> None:
            shown.update(bar, completed=done, total=total, description=what)

        yield report
