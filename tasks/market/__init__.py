"""One job on the spot market: prices, decisions, purchases, ledger.

Which record is the truth:

| record | written by | where it differs |
|---|---|---|
| EC2 | EC2 | wins over all: the next tick enters what it lists in the journal |
| journal | `engine_journal` | decides: the engine is its replay |
| snapshot | `engine_journal` | a copy of the engine: made anew if it does not fit the journal |
| intent | `engine_journal`, `purchases` | an order under way; unanswered, it is sent again with its token |
| allocation | `engine_journal` | a copy of the journal for queries |
| ledger | `ledger` | follows from allocations and prices; budgets are held to it |
| tags | `purchases` | a copy for people and `panic`: machines are known by instance id and token |

purchases/        purchases of machines: requests, their sending, the reliable tier
bookkeeping       cost of each hour of each allocation, and its maximum
costs             costs by job, market and use, which add up to the ledger
current_prices    current prices, and whether they are recent enough to decide on
decisions         decision points: observations to the engine, its orders to the journal
engine_journal    the engine of a job and its journal, replayed and appended in one transaction
eviction_notices  eviction notices that the reliable tier reports
facts/            what is known of markets: placement scores, grants, survival
hand_over         machines of ended jobs of a queue, taken over by the next
ingest            price history from the market into the price store
job_opening       opening and closing the bidding of a job
listed_machines   machines: tags, look-up and termination
machine_events    events of machines from the deployment's queue
market_features   market features for policies that weigh the recent past
reaping           the machines of this owner that nothing needs
renewals          schedule of the renewal decision of an allocation
tick              claim on a job, so that one tick of it runs at a time
"""
