"""Rules of the simulated market, each free of I/O.

accepted_purchases  which purchases are accepted, and how many machines they get
behaviour           how far the market behaves as EC2 does: reads that lag, records and tokens that are forgotten,
                    quotas
capacity            how many spot machines a market has over time, which it takes, its placement score
client_tokens       what each client token bought, so that a repeated purchase buys nothing
lagging_reads       what a read shows: the machines of an account, as they were a while ago
machine_changes     what happens to machines, in order of time: due changes, calls, faults
refusals            the refusals, with EC2's codes and words
trace_rules         what the traces say: published prices, and when a machine will be evicted
"""
