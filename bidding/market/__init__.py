"""The market as values: money, prices over time, markets, grants.

catalog           the instance types that can be bought, with their on-demand price of a day
grants            whether a market grants a bid, and when it takes the machines again: by price, as in the bid
era
model             the nouns of the market, as immutable values
money             money as integers: one micro-dollar is the unit of every price, charge and refund
spot_market       what the core needs of the world, as Protocols
time_window       a part of time: what a model was fitted on, what it is checked on, what a backtest evaluates
trace_statistics  what a price history is like, in the figures that decide how schemes rank on it
traces            prices over time: step functions on sorted arrays
"""
