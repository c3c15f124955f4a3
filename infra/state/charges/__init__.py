"""Charges of an allocation's hours, without I/O.

charge_prices  the prices that hours are charged at, also where the market does not report one
shares         the share of each machine in an hour's charge
"""
