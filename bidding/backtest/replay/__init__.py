"""One simulated job through the live engine.

engine_replay    one job through the live engine: the very events, orders and journal of a real job, on recorded
prices
job_progress     how far a simulated job is, and what a loss leaves of it: the live engine's half of the story
that `simulate` tells
recorded_market  the recorded market of one job, and the live engine that bids in it
"""
