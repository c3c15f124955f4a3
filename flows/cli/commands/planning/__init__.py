"""Weigh what a job would cost.

backtest  the verb `proteus backtest`
bill      the verb `proteus bill`
plan      the verb `proteus plan`
"""
