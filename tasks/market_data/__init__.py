"""Price files and eviction models.

bills             what requests for spot machines would have come to on recorded prices
eviction_models   eviction models: fitted to files, and checked on later ones
eviction_sources  what eviction models are learnt from and checked on: the files, and the part of their time
that is asked for
eviction_tables   eviction models that a user gives to a job, a backtest or a plan, as the table that policies
go by
local_market      the market of a run on this machine: a generated one, or a given price file
on_demand         the types of the markets that a run, a job or a backtest may bid in, at their on-demand price
of a day
trace_summary     what a price history holds, market by market, in figures
traces            what the price files hold, and how they are made and turned into one another
"""
