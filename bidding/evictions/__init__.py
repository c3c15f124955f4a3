"""Eviction models: survival of a bid by market, state and bid delta, fitted to prices and checked on later months.

Every model is one array, `survival[market, state, delta, horizon]`, with the rule that gives the present state of a
market. Prices are passed in as a `TraceSet`.

    base             the `EvictionModel` Protocol, and figures derived from it: β, median time, the paper's table
    calibration      check of a model on later prices: reliability curves and Brier scores
    curve_model      `CurveModel`: the implementation of the Protocol by survival curves, and its record
    curves           survival curves as arrays, and their interpolation
    fit_capacity     fit of `capacity`, for markets where bids decide nothing: EC2 since the end of 2017, GCE
    fit_conditioned  fit of `conditioned`: survival given the market's present state
    fit_survival     fits of `table` and `survival`: survival given the bid delta alone
    fixed_bid        β of a bid of a fixed amount, as the standard strategy's
    lifetimes        lifetimes of all bids in a price history, and survival curves of their counts
    neural/          RevPred and Tributary's predictor, trained under JAX
    predictors/      estimators of an eviction within the hour, given the present: one a market, by name
    states           present state of a market, as a number: level, age of the price, time above the bid
    summary          an eviction model in figures, for display
    table            `EvictionTable` of the paper: β and median time by market and bid delta, and its fit
"""
