"""The least cost of a job for a scheme that knows all prices.

The modules:

    bound           the clairvoyant bound of a job's cost, by a search over the value of work
    hourly_offers   the markets by bins of time: the cheapest hour, and the longest free life of a machine
    shortest_paths  the best path of one vCPU of the cap to each bin, at a given value of work
"""
