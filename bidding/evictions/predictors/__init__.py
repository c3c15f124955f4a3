"""Eviction predictors: estimators of P(the price rises above a limit within the next hour), one a market.

They are fitted to the prices of earlier weeks and asked at a moment, for a limit (the maximum price that is bid).

    base             the `EvictionPredictor` Protocol, and the error of a market that cannot be fitted
    input_scaling    features and limits as inputs of a regression or a network
    logistic         logistic regression on the present record and the limit
    minute_features  six features of a market at each minute, from its price steps
    names            predictors by name: table, logistic, tributary, revpred, none
    none             no evictions are expected: the predictor of a sweep that ignores them
    predictor_model  `PredictorModel`: the predictors of many markets, with the table for the others; an `EvictionModel`
                     too
    tabulated        the project's own table as a predictor: the share of past bids that were taken
    training_limits  limits to train on (SpotTune's Algorithm 2, or random ones), and what came of a limit
"""
