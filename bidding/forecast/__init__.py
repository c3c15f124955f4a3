"""Forecast of a bid made now from the market's recent past: the probability and the time of an eviction in the hour.

The modules:

    features        `MarketFeatures`: the recent past of a market as numbers, and a model's inputs made of them
    forecast_fit    fit of a forecast: penalised logistic regression on step functions, by Newton's method
    forecast_model  `Forecast`: additive model of log-odds for each bid delta and horizon
"""

from proteus_spot.bidding.forecast.features import MarketFeatures, features_of
from proteus_spot.bidding.forecast.forecast_fit import fit_forecast
from proteus_spot.bidding.forecast.forecast_model import Forecast

__all__ = ["Forecast", "MarketFeatures", "features_of", "fit_forecast"]
