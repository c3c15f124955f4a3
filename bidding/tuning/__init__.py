"""Tuning: the decisions of a hyper-parameter sweep on spot machines, as values and pure functions.

The modules:

    stopping/  stopping rules: which trials go on, and to which step, by the name that users type
"""
