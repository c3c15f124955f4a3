"""Stopping rules: which trials of a sweep go on, and to which step, by the name that users type.

The modules:

    asha              rule `asha`: asynchronous successive halving
    base              the `TrialStoppingRule` Protocol, its input `TrialView` and `StoppingPlan`, and its output
                      `Verdict`
    early_curve_rule  rule `earlycurve`: at the share theta of the steps, the best trials by predicted metric go on
    median            rule `median`: a trial stops whose best value is worse than the median of the others' averages
    never             rule `none`: every trial runs all of its steps
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from proteus_spot.bidding.tuning.stopping.asha import AshaRule
from proteus_spot.bidding.tuning.stopping.base import TrialStoppingRule
from proteus_spot.bidding.tuning.stopping.early_curve_rule import EarlyCurveRule
from proteus_spot.bidding.tuning.stopping.median import MedianRule
from proteus_spot.bidding.tuning.stopping.never import NeverRule

#: Stopping rules by the name of `stop:` in a sweep's file.
RULES: Mapping[str, Callable[[], TrialStoppingRule]] = MappingProxyType(
    {"asha": AshaRule, "earlycurve": EarlyCurveRule, "median": MedianRule, "none": NeverRule}
)
#: Names of all rules, as users type them.
RULE_NAMES: tuple[str, ...] = tuple(sorted(RULES))


def stopping_rule(name: str) -> TrialStoppingRule:
    """Return the stopping rule called `name`, as in ``earlycurve``.

    Raises
    ------
    ValueError
        If no rule has that name; the message lists all names.
    """
    if name not in RULES:
        raise ValueError(f"unknown stopping rule {name!r}; there are {', '.join(RULE_NAMES)}")
    return RULES[name]()
