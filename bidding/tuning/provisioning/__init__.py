"""Provisioner of a sweep: which machine a trial is deployed on, and when a move to another is worth its cost.

offers     the markets of a tick by the expected cost of a step, and the gain of a move
purchases  the machines that a tick buys: within the budget, and on demand once a deadline has no slack
"""
