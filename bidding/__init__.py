"""BidBrain: what to buy, hold and let go, so that a unit of work costs least.

Pure: no clock, no network, no files, no random source that was not handed in. `engine.BidEngine` is the one door.
"""
