"""The batch simulator: one job after the other on recorded prices, compiled, under any scheme. Pure: no clock, no files.

`markets` and `tables` hold what a job is run on as arrays, `setting` what it is, `view` what a scheme is shown, `schemes`
what it may decide, `simulate` runs one job, `driver` many of them. `clairvoyant` says what nobody
can go below.

    clairvoyant/       the least cost of a job for a scheme that knows all prices
    replay/            one simulated job through the live engine
    schemes/           the rules by number, for the compiled loop. A further one is a file with `acquire` and
                       `renews`, and a line in each switch
    accounts           the money and the machine time of what is held: the models of `bidding.billing`, hour by hour
    billing_codes      a billing model as fields of `Setting`, and back: the compiled loop counts by those, whoever
                       else by the model
    eviction_arrays    the eviction table as arrays
    outcomes           what became of a job, as one row of whole numbers
    parameters         what a simulated job is, and how it bears losses: alike for every scheme that is compared
    price_arrays       markets as arrays, and the two questions that a simulation asks of them: the price now, and
                       when it next passes a bid
    reference_cluster  what costs and run times are relative to, and when jobs start
    runner             many jobs of one scheme, on as many threads as are given
    simulate           one job from its start to its end, from one second in which something happens to the next
    view               what a scheme is shown: the present and the past
"""
