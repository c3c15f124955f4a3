"""Verbs that estimate costs.

backtest  the verb `backtest`: costs of schemes on recorded prices
bill      the verb `bill`: the bill of an allocation on recorded prices
plan      the verb `plan`: estimated cost and time of a job
"""
