"""Benchmarks of sweeps. curves/ has recorded trials of each application, as `proteus sweep record` writes them.

earlycurve  benchmark `earlycurve`: EarlyCurve beside SLAQ, the ranking of trials by theta, variation of step times
trials/     the applications that SpotTune was measured on, as trial files
"""
