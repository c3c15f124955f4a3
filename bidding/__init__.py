"""BidBrain: what to buy, hold and terminate, so that a unit of work costs least.

The package is pure: no clock, no network, no files, and no random source but those passed in. `engine.BidEngine` is the
single entry point of a live job.

    backtest/   batch simulator: compiled runs of many jobs on recorded prices, under any scheme
    billing/    billing models: charges of an allocation from prices and its life, in integer micro-dollars
    economics/  the paper's equations, and the facts of a job that they need
    engine/     bidding engine of a live job: events in, orders out, and their journal
    evictions/  eviction models: survival of a bid by market, state and bid delta; fits and calibration
    facts/      what is known of a market, with source and age: grants, survival, bursts
    forecast/   probability and time of an eviction within the hour, from a market's recent past
    jit         decorators of compiled functions, and the key of numba's cache
    market/     the market as values: money, prices over time, instance types, grants
    policies/   bidding policies of a live job, one file each, by the name that users type
    synthetic/  generated price histories, from a seed
    tuning/     hyper-parameter sweeps: trials on single machines, stopping rules
"""
