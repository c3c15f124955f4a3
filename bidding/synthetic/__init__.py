"""Seeded markets for when there is no price file.

auction_market  a seeded market as a sequence of auctions, for price files that schemes rank on as on the real
ones
renewal_market  a seeded market with the looks of the real ones, for when there is no price file
"""
