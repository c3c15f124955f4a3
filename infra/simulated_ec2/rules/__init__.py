"""Rules of the simulated market that need no trace.

behaviour        how far the market behaves as EC2 does: reads that lag, records and tokens that are forgotten, quotas
bill             what the market bills for what it sold
client_tokens    what each client token bought, so that a repeated purchase buys nothing
machine_changes  what happens to machines, in order of time: due changes, calls, faults
quotas           EC2's vCPU quotas, by class of instance family
refusals         the refusals, with EC2's codes and words
"""
