"""Predictors by name."""

from proteus_spot.bidding.evictions.predictors.base import EvictionPredictor
from proteus_spot.bidding.evictions.predictors.logistic import LogisticPredictor
from proteus_spot.bidding.evictions.predictors.none import NoPredictor
from proteus_spot.bidding.evictions.predictors.tabulated import TablePredictor

#: Predictors by name, the default first.
PREDICTORS = ("table", "logistic", "tributary", "revpred", "none")
#: Those whose training needs JAX.
NEURAL = ("tributary", "revpred")


def predictor_class(name: str) -> type[EvictionPredictor]:
    """Return the class of the predictor of a name; `ValueError` for an unknown one.

    The neural ones are imported only when they are asked for.
    """
    if name == "revpred":
        from proteus_spot.bidding.evictions.neural.revpred import RevPred

        return RevPred
    if name == "tributary":
        from proteus_spot.bidding.evictions.neural.tributary import Tributary

        return Tributary
    plain: dict[str, type[EvictionPredictor]] = {
        "table": TablePredictor,
        "logistic": LogisticPredictor,
        "none": NoPredictor,
    }
    if name not in plain:
        raise ValueError(f"no predictor {name!r}; want {', '.join(PREDICTORS)}")
    return plain[name]
