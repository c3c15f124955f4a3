"""What the recent past of a market says of a bid made in it now: how likely it is taken within the hour, and when.

`signals` reads the recent past from a price history, `model` weighs it, `learning` fits the weights.
"""

from bidding.foresight.learning import fit_foresight
from bidding.foresight.model import Foresight
from bidding.foresight.signals import Signal, signals_of

__all__ = ["Foresight", "Signal", "fit_foresight", "signals_of"]
