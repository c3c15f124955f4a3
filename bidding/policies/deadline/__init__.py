"""Policy `deadline`: a job ends in time, whatever spot does, at the least expected cost.

bidding_policy  the policy of a live job: spot machines of the market with the cheapest work
fleet           the machines of a job of many, by market and on demand
one_machine     the next step of a job of one machine, with and without memory
slack_plan      the plan that it follows: what slack is best spent on
spot_spells     hazards of spot by the time since it came or went
"""

from proteus_spot.bidding.policies.deadline.bidding_policy import DeadlinePolicy
from proteus_spot.bidding.policies.deadline.one_machine import OneMachine, one_machine

__all__ = ["DeadlinePolicy", "OneMachine", "one_machine"]
