"""Purchases of machines: each order becomes one request, which is repeated unchanged until its outcome is known.

dry_run             purchases that the market checks without making them
fence               of two copies of a state database, one ticks a job and buys for it
order_chains        names of the orders for machines of the reliable tier
reliable_purchases  the machines bought on demand: bought, bought again when lost, released
requests            the request of an order: client token, tags, user-data, network
sending             sends the request of an order, and records what the market answers
waiting             what the purchases of a job wait for
"""
