"""The market as values: money, prices over time, markets, grants.

The modules:

    catalog           instance types with their on-demand price by region and day
    failures          classes of the market's error codes, and what follows from each for an order
    grants            grants and evictions of bids by price, as in the bid era
    machine_events    Protocol of a queue of events of machines
    model             immutable values: markets, instance types, allocations, instances, price points
    money             amounts as integers, in micro-dollars
    quotas            EC2's vCPU quotas, by class of instance family
    spot_market       Protocol of a market for machines, and its errors
    time_window       `TimeWindow`: an interval of a fit, a check or a backtest
    trace_statistics  figures of a price history that decide how schemes rank on it
    traces            prices over time: step functions on sorted arrays
"""
