"""The goals of the figures of a record of availability: what is asked of our policy, and whether it holds."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Goal:
    """One figure, and what is asked of it.

    Attributes
    ----------
    most : whether the figure must be at most `asked`, else above it.
    """

    what: str
    ours: float
    asked: float
    most: bool = True

    @property
    def holds(self) -> bool:
        """Whether the figure is as asked."""
        return self.ours <= self.asked if self.most else self.ours > self.asked

    def record(self) -> dict[str, object]:
        """Return what ``--json`` writes."""
        return {
            "what": self.what, "ours": self.ours, "asked": self.asked,
            "is": "at most" if self.most else "above", "holds": self.holds,
        }  # fmt: skip


#: Factor above the bound of machines that come and go, over any zone.
ABOVE_BOUND = 1.1
#: Mean of single regions, as a share of the cheapest price on demand.
OF_REGIONS = 0.42
