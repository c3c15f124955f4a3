"""Price files, generated markets and eviction models.

bills             bills of requests for spot machines on recorded prices
eviction_models   fitting and checking of eviction models
eviction_sources  sources of eviction models: files and a window of their time
eviction_tables   an eviction model file as the table that policies use
fetched_catalog   a catalogue from AWS: prices of the Price List, machines as EC2 describes them
local_market      the market of a local run: generated, or a given price file
on_demand_prices  instance types of markets at the on-demand price of a day
predictors        eviction predictors: fitted to price files, kept for sweeps, and their ages
price_feed        whether the prices of a market reach its time
trace_files       price files: reading, generation and conversion
trace_summary     statistics of a price history, market by market
"""
