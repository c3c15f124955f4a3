"""The batch simulator: compiled runs of many jobs on recorded prices, under any scheme.

`runner` runs many jobs, `simulate` one; `price_arrays`, `eviction_arrays` and `parameters` are its input, `view` is the
input of a scheme, and `outcomes` the result. `clairvoyant` bounds the cost from below.

    capacity/          jobs with deadlines on records of what could be had, whatever was bid
    clairvoyant/       the least cost of a job for a scheme that knows all prices
    replay/            one simulated job through the live engine, to check the compiled loop
    schemes/           the rules of the compiled loop, and the registry of schemes by name
    billing_codes      conversion of a billing model to fields of `JobParameters`, and back
    eviction_arrays    the eviction table and the forecast as arrays
    outcomes           columns of a job's result row, and summaries over jobs
    parameters         `JobParameters`: the settings of a simulated job, as whole numbers
    price_arrays       price histories as arrays: the price now, and when it next passes a bid
    reference_cluster  the on-demand cluster that costs and run times are relative to, and start times of jobs
    runner             many jobs of one scheme, on several threads
    simulate           one job from its start to its end, event by event
    view               `SchemeView`: the present and the past, the input of a scheme
"""
