"""The budget of a job: the maximum of its ledger, and what a purchase may add to that.

A rule without state. The caller supplies the worst case of what is spent, due, requested, running and committed; the
rule decides what still fits, and when the job must end. A refund counts once it is booked, never before.

Notes
-----
Two quantities bound a job. *Committed* is the maximum of its ledger if the job is ended at its next decision point:
every machine runs until it can be ended, at the highest price that its bid allows. A purchase is bounded by the whole
first hour where hours are paid, else by the seconds until it can be ended.
"""

from collections.abc import Callable
from dataclasses import dataclass

from proteus_spot.bidding.market.model import HOUR_S
from proteus_spot.bidding.market.money import Micros

#: Seconds that are charged for at least, where seconds are paid.
MINIMUM_S = 60


@dataclass(frozen=True, slots=True)
class Spending:
    """Worst case of what a job spends, against its budget.

    Attributes
    ----------
    budget_micros : Micros
        The limit of the ledger.
    committed_micros : Micros
        The maximum of the ledger if nothing more is bought and the job is ended at its next decision point.
    ends_by_s : int
        Time by which machines that run then, or are bought now, can be ended.
    """

    budget_micros: Micros
    committed_micros: Micros
    ends_by_s: int

    @property
    def is_reached(self) -> bool:
        """Whether the job must end now: one more decision point could pass the budget."""
        return self.committed_micros > self.budget_micros


class Purse:
    """What the decisions of one tick may still commit; without a budget there is no limit."""

    def __init__(self, spending: Spending | None) -> None:
        self.spending = spending
        self._taken: Micros = 0

    @property
    def left_micros(self) -> Micros | None:
        """What is left; None: there is no limit."""
        if self.spending is None:
            return None
        return max(self.spending.budget_micros - self.spending.committed_micros - self._taken, 0)

    def take(self, micros: Micros) -> bool:
        """Commit `micros` if they are left; return whether they were."""
        left = self.left_micros
        if left is not None and micros > left:
            return False
        self._taken += micros
        return True


def purchase_micros(pays_whole_hours: bool, hour_micros: Micros, seconds: int) -> Micros:
    """Return the most that one machine bought now costs until it can be ended.

    Parameters
    ----------
    pays_whole_hours : whether an hour that has begun is paid for. The first counts then: each later hour is decided,
        and counted, by itself.
    hour_micros : the highest price of its hour.
    seconds : until it can be ended.
    """
    if pays_whole_hours:
        return hour_micros
    return -(-hour_micros * max(seconds, MINIMUM_S) // HOUR_S)


def lasts_until_s(most_micros: Callable[[int], Micros], budget_micros: Micros, from_s: int, until_s: int) -> int:
    """Return the last second of [from_s, until_s] until which the machines can run within the budget.

    Parameters
    ----------
    most_micros : the maximum of the ledger if they are ended at a time; it never falls with the time.

    Returns
    -------
    int
        `from_s` where even that passes the budget.
    """
    low_s, high_s = from_s, max(from_s, until_s)
    while low_s < high_s:
        middle_s = (low_s + high_s + 1) // 2
        if most_micros(middle_s) <= budget_micros:
            low_s = middle_s
        else:
            high_s = middle_s - 1
    return low_s
