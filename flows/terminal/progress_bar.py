"""How far something is, as a bar on a terminal."""

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
    """Give a function (done, of how many, what comes next) that shows it on standard error.

    It shows nothing elsewhere than on a terminal, and leaves nothing there.
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

        def report(done: int, of: int, what: str) -> None:
            shown.update(bar, completed=done, total=of, description=what)

        yield report
