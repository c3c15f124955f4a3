"""Policy `deadline`: a job ends in time, whatever spot does, at the least expected cost.

fleet_policy    the policy of a live job: what `fleet` says, as purchases and releases
fleet           the machines of a job of many, by market and on demand
fleet_view      what a live job knows, in the terms of `fleet`
one_machine     the next step of a job of one machine, with and without memory
slack_plan      the plan that it follows: what slack is best spent on
spot_spells     hazards of spot by the time since it came or went
"""

from proteus_spot.bidding.policies.deadline.fleet_policy import AT_RISK, DeadlinePolicy
from proteus_spot.bidding.policies.deadline.one_machine import OneMachine, one_machine

__all__ = ["AT_RISK", "DeadlinePolicy", "OneMachine", "one_machine"]
