"""What a tick does to the market and the journal of a job.

costs             the ledger as its reader wants it: by job, market and use, adding up to what was charged
decisions         a decision point: what was seen goes to the engine, what it orders is written down before
anybody acts
engine_journal    a job's engine: its journal replayed once, events handed to it, and all of it written down in
one transaction
eviction_notices  an eviction notice as the reliable tier reports it; the payload of the event
`spot.interruption-notice`
features          the recent past of the markets that a job may bid in, for policies that weigh it
ingest            price history from the market into the price store, only what is new
instances         machines: what the market says of them, buying, letting go
ledger            the ledger: what every hour of every allocation cost, kept up with the market
opening           opening and closing the bidding of a job
prices            prices as the market tells them, and whether they are fit to decide on
renewals          booking the decision on an allocation's next hour for the moment at which it is due
tick              one tick of a job at a time, without a lock that a dead process could keep
"""
