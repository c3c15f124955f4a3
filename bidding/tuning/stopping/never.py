"""Rule `none`: every trial runs all of its steps."""

from collections.abc import Mapping, Sequence

from proteus_spot.bidding.tuning.stopping.base import StoppingPlan, TrialView, Verdict


class NeverRule:
    """Stops no trial."""

    def first_target(self, plan: StoppingPlan) -> int:
        """Return the last step."""
        return plan.max_trial_steps

    def decide(self, trials: Sequence[TrialView], plan: StoppingPlan) -> Mapping[int, Verdict]:
        """Return no verdict."""
        return {}
