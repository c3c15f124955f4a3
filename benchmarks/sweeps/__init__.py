"""Benchmarks of sweeps.

trials/  the applications that SpotTune was measured on, as trial files
"""
