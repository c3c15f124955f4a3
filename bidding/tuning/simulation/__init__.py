"""A whole sweep over recorded prices, by the state machine of a live sweep.

record  recorded trials of an application: curves, seconds of a step, sizes of states
"""
