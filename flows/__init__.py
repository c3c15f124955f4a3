"""Stories that read top to bottom: the life of a job, its ticks, its evictions.

cli/             the command `proteus`
local/           runs on one machine, whole
terminal/        what is shown on a terminal
allocation_tick  the tick: look at prices and machines, decide what to buy, hold and let go, and do it
automations      what the Prefect server does by itself: mark a run as crashed when its process has died without
a word
backtest         a backtest from the Prefect UI: what schemes would have cost on recorded prices, as a table and
as pictures
handle_eviction  an eviction notice was seen on a machine: take note of it, and decide anew at once
ingest_prices    keep the price history: AWS gives back 90 days, a fit wants more and the same ones tomorrow
reap             the reaper: ends whatever is tagged ours and has no live order
renew_hour       the end of an allocation's billing hour, booked by the tick: decide on its next hour just in
time
train            the life of a training job, from being asked for to its result
"""
