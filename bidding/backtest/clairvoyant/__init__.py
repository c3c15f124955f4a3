"""The least cost of a job for a scheme that knows all prices.

bound           the clairvoyant bound: no scheme does a job for less, for this is the least cost of who knows
all prices
hourly_offers   what the markets offer to who knows all prices, by bins of time: the cheapest hour, and how long
a machine is free
shortest_paths  the clairvoyant's paths: what one vCPU of the cap does best until each moment, if its work is
worth so much
"""
