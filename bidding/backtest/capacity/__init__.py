"""Jobs with deadlines on records of availability: what could be had at each step, whatever was bid.

bounds   what no scheme can go below, because it knows the record
elastic  the policy `deadline`: machines of many zones that come and go one by one
gang     other schedulers: all machines in one zone, or none
job      the job, and what becomes of it
one      jobs of one machine
probes   where the variants of Uniform Progress look for spot
record   `CapacityRecord`: counts by step and zone, and prices
"""
