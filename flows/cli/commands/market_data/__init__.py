"""Price files and eviction models.

evictions  the verbs `proteus evictions …`: fit how long bids live, look at it, and check it on later months
traces     the verbs `proteus traces …`: look at price files, make them, turn one form into another
"""
