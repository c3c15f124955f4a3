"""One simulated job through the live engine.

The modules:

    engine_replay    the driver: one job through the live engine, with a real job's events, orders and journal
    recorded_market  the recorded market of one job, and the live engine that bids in it
"""
