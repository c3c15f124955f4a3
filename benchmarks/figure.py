"""The result of a benchmark."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import perf_counter


@dataclass(frozen=True)
class Figure:
    """One figure of Proteus beside that of a peer or a limit, in the same unit.

    Attributes
    ----------
    ours_spread, beside_spread : (lowest, highest)
        Range of the repetitions; the figures are their medians.
    valid : whether the conditions of the measurement were met; the note names those that were not.
    """

    benchmark: str
    what: str
    unit: str
    ours: float
    beside: float
    beside_is: str
    ours_spread: tuple[float, float]
    beside_spread: tuple[float, float]
    note: str = ""
    valid: bool = True

    @property
    def ratio(self) -> float:
        """Ours divided by the figure beside it."""
        return self.ours / self.beside


def figure(
    benchmark: str,
    what: str,
    unit: str,
    ours: list[float],
    beside: list[float],
    beside_is: str,
    note: str = "",
    valid: bool = True,
) -> Figure:
    """Return the figure of the medians of repetitions."""
    return Figure(
        benchmark,
        what,
        unit,
        median(ours),
        median(beside),
        beside_is,
        (min(ours), max(ours)),
        (min(beside), max(beside)),
        note,
        valid,
    )


def seconds(work: Callable[[], object]) -> float:
    """Return the seconds that `work` takes."""
    began = perf_counter()
    work()
    return perf_counter() - began
