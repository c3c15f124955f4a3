"""Runs on one machine, whole.

job_threads  one job on this machine, under way: its training, its ticks and its terminal, each in a thread of
its own
run          the main job on this machine: the same flows, called in this process at the market's scaled moments
train        the engine alone on this machine: one job on local nodes, from its options to its figures
"""
