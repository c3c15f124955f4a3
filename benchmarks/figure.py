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
    most : what is asked: `ours` is at most so many times `beside`; None: nothing is.
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
    most: float | None = None

    @property
    def ratio(self) -> float:
        """Ours divided by the figure beside it."""
        return self.ours / self.beside

    @property
    def holds(self) -> bool | None:
        """Whether ours is as asked; None if nothing is asked, or the measurement is not valid."""
        return None if self.most is None or not self.valid else self.ours <= self.most * self.beside

    @property
    def verdict(self) -> str:
        """What is asked, and whether it holds; empty if nothing is asked."""
        if self.most is None:
            return ""
        judged = {True: "holds", False: "does not hold", None: "not judged, the measurement is not valid"}[self.holds]
        return f"asked: at most {self.most:g} times that: {judged}"


def figure(
    benchmark: str,
    what: str,
    unit: str,
    ours: list[float],
    beside: list[float],
    beside_is: str,
    note: str = "",
    valid: bool = True,
    most: float | None = None,
) -> Figure:
    """Return the figure of the medians of repetitions; `most` is the largest ratio that is asked."""
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
        most,
    )


def seconds(work: Callable[[], object]) -> float:
    """Return the seconds that `work` takes."""
    began = perf_counter()
    work()
    return perf_counter() - began
