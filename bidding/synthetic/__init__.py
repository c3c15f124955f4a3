"""Generated price histories and capacity, from a seed, for use without a file.

The modules:

    auction_market   prices from a sequence of auctions, on which schemes rank as on the real markets
    capacity_market  `generate_capacity`: machines that come in steps and go in bursts
    renewal_market   `generate`, the named climates, and prices from a level with noise and spikes
"""
