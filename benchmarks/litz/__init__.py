"""Benchmark `litz`: what the evaluation of Litz shows, on this engine.

litz                the benchmark: its parts, run one after the other
over_decomposition  a clock with several executors a core
"""
