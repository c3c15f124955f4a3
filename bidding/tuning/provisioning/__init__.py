"""Provisioner of a sweep: which machine a trial is deployed on, and when a move to another is worth its cost.

bids             the random bid of a market and decision, from the sweep's seed
step_cost        expected cost of a step by formulas 1 and 2, and the matrix M of step times
trial_costs      the markets of a tick by the expected cost of a step, and the gain of a move
trial_purchases  the machines that a tick buys: within the budget, and on demand once a deadline has no slack
"""
