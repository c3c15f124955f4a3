"""Generated price histories, from a seed, for use without a price file.

The modules:

    auction_market  prices from a sequence of auctions, on which schemes rank as on the real markets
    renewal_market  `generate`, the named climates, and prices from a level with noise and spikes
"""
