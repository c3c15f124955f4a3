"""Sweeps on this machine alone, without a market, a database or Prefect.

sweep  a sweep as processes of this machine, with its journal in a file
"""
