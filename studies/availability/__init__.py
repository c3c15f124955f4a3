"""Backtests of jobs with deadlines on records of availability.

figures     what a set of records shows, each figure next to its goal
goals       the goals of the figures
"""
