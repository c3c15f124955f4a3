"""What the recent past of a market says of a bid made in it now: how likely it is taken within the hour, and when.

`signals` reads the recent past from a price history, `model` weighs it, `learning` fits the weights.

    features  the recent past of a market in seven numbers, and what a model reads in them
    fit       fitting a foresight: penalised logistic regression on step functions, by Newton's method
    model     how a signal is weighed: an additive model of log-odds, one step function a feature, for each bid
              delta and horizon
"""

from bidding.forecast.features import MarketFeatures, features_of
from bidding.forecast.fit import fit_forecast
from bidding.forecast.model import Forecast

__all__ = ["Forecast", "MarketFeatures", "features_of", "fit_forecast"]
