"""How long a bid lives: survival curves by market, state and bid delta, and how well they foretell later months.

Every model is one array, `survival[market, state, delta, horizon]`, with the rule that says which state a market is in
now. Pure: prices come as `TraceSet`, nothing here reads a file.

    base             what every eviction model answers, and what follows from it: β, the median time to an eviction,
                     the paper's table
    calibration      how well a model foretold what came: predicted against observed shares, and Brier scores, on
                     later prices
    curve_model      the one implementation of the Protocol: curves by market, state, delta and horizon, and bins
                     that say the state
    curves           survival curves as arrays: P(a bid still lives after so long), by market, state, bid delta and
                     horizon
    fit_capacity     the model `capacity`, for markets where bids decide nothing: EC2 since the end of 2017, GCE
    fit_conditioned  the model `conditioned`: survival given what is known of the market now (`states`), careful
                     where that was rare
    fit_survival     the models `table` and `survival`: what a bid's delta alone says, learnt from the price history
    fixed_bid        how likely a bid of so many dollars, whatever the price is, is taken within the hour: the
                     standard strategy's bid
    lifetimes        how long each bid lived in a price history, and how many of them lived how long
    states           what is known of a market now, as a number: the state that a conditioned model looks its curve
                     up by
    summary          an eviction model in figures, for whoever looks at it
    table            how likely a bid is to be taken within the hour, by market and bid delta, learnt from the price
                     history
"""
