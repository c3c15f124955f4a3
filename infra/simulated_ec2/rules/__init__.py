"""Rules of the simulated market that need no trace: what a read shows, quotas, and the bill.

behaviour  how far the market behaves as EC2 does: reads that lag, records and tokens that are forgotten, quotas
bill       what the market bills for what it sold
quotas     EC2's vCPU quotas, by class of instance family
"""
