"""BidBrain: what to buy, hold and let go, so that a unit of work costs least.

Pure: no clock, no network, no files, no random source that was not handed in. `engine.BidEngine` is the one door.

    backtest/   the batch simulator: one job after the other on recorded prices, compiled, under any scheme. Pure:
                no clock, no files
    billing/    what an allocation costs: pure functions from a trace and a life to charges, in integer micro-
                dollars
    economics/  the paper's equations, and what they need to know of a job
    engine/     the bidding engine: events in, orders out, and the journal that both are written to
    evictions/  how long a bid lives: survival curves by market, state and bid delta, and how well they foretell
                later months
    forecast/   what the recent past of a market says of a bid made in it now: how likely it is taken within the
                hour, and when
    jit         how compiled functions are made, and when they are compiled again
    market/     the market as values: money, prices over time, markets, grants
    policies/   bidding policies, one file each, by the name that users type
    synthetic/  seeded markets for when there is no price file
"""
