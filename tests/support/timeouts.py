"""Timeouts after which a test fails because a condition did not occur; long, since they decide nothing else."""

#: Limits are written for a machine that does nothing else. One on which other tests run, or a slow one, is given this
#: many times as long.
PATIENCE = 4.0
