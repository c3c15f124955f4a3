"""`MarketKnown`: all that is known of one market, each figure with its source and the time that it is of."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from proteus_spot.bidding.facts.grants import GrantOutlook
from proteus_spot.bidding.facts.records import Source
from proteus_spot.bidding.facts.survival import Bursts, Survival
from proteus_spot.bidding.market.model import HOUR_S, Market

#: Ages, in hours, to which the survival of a machine is shown.
SHOWN_H = (1, 6, 24)


@dataclass(frozen=True, slots=True)
class DatedFigure:
    """A number with its source and its time; `at_s` is None for what has no time, as a prior."""

    value: float
    source: Source
    at_s: int | None = None

    def age_s(self, now_s: int) -> int | None:
        """Return how old it is."""
        return None if self.at_s is None else max(now_s - self.at_s, 0)


@dataclass(frozen=True, slots=True)
class MarketKnown:
    """What is known of a market at `at_s`.

    Attributes
    ----------
    price_micros, on_demand_micros : an hour of a machine; None where there is no price.
    share_granted : share of the machines asked for that was granted, of all answers; None before the first.
    grant : the chance and the size of a grant now.
    survival : how long a machine usually lives, by its age.
    bursts : how many machines are taken together.
    score : the newest placement score, 1 to 10.
    monthly_share : the share of machines that is taken in a month, by the advisor.
    refused : the code of the newest refusal, and when that was; None where there is none, or some were granted since.
    rebalances : machines for which a rebalance was recommended within the last hour; None where there is none.
    elevated : how long a machine lives while these recommendations are fresh; None where there is none.
    taken_after : share of the machines of all recommendations, in all markets, that was taken within the hour.
    there, usually_there : machines that could be had at the last look, ours included, and the mean of that over the
        time that is known; None where only requests tell.
    """

    market: Market
    at_s: int
    grant: GrantOutlook
    survival: Survival
    bursts: Bursts
    price_micros: DatedFigure | None = None
    on_demand_micros: DatedFigure | None = None
    share_granted: DatedFigure | None = None
    score: DatedFigure | None = None
    monthly_share: DatedFigure | None = None
    refused: tuple[str, int] | None = None
    rebalances: DatedFigure | None = None
    elevated: Survival | None = None
    taken_after: DatedFigure | None = None
    there: DatedFigure | None = None
    usually_there: DatedFigure | None = None

    @property
    def survival_now(self) -> Survival:
        """How long a machine lives that is bought now."""
        return self.survival if self.elevated is None else self.elevated

    def in_words(self) -> str:
        """Return the figures that a decision rests on, in a line."""
        hours = self.survival.exposure_s / HOUR_S
        words = [
            f"some are granted in {self.grant.chance:.0%} of requests, {self.grant.size:.0%} of what is asked",
            f"{self.survival_now.lives(HOUR_S):.0%} live an hour ({self.survival.losses} losses in {hours:.0f} h)",
        ]
        if self.score is not None:
            words.append(f"placement score {self.score.value:.0f}")
        if self.refused is not None:
            words.append(f"last refused by {self.refused[0]}")
        if self.rebalances is not None:
            words.append(f"rebalance recommended to {self.rebalances.value:.0f} within the hour")
        return ", ".join(words)

    def to_record(self) -> dict[str, Any]:
        """Return it as a JSON object; `from_record` gives the same again."""
        return {**asdict(self), "market": str(self.market)}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "MarketKnown":
        """Return what `to_record` wrote; a field that is unknown here is left out."""
        grant, elevated = record["grant"], record.get("elevated")
        refused = record["refused"]
        return cls(
            market=Market.parse(record["market"]),
            at_s=record["at_s"],
            grant=GrantOutlook(**{**grant, "shares": tuple(grant["shares"])}),
            survival=_survival(record["survival"]),
            elevated=None if elevated is None else _survival(elevated),
            bursts=Bursts(**record["bursts"]),
            refused=None if refused is None else (refused[0], refused[1]),
            **{name: _figure(record.get(name)) for name in _FIGURES},
        )


_FIGURES = (
    "price_micros", "on_demand_micros", "share_granted", "score", "monthly_share", "rebalances", "taken_after", "there",
    "usually_there",
)  # fmt: skip


def _survival(record: Mapping[str, Any]) -> Survival:
    return Survival(**{**record, "hazards_per_s": tuple(record["hazards_per_s"])})


def _figure(record: Mapping[str, Any] | None) -> DatedFigure | None:
    return None if record is None else DatedFigure(record["value"], Source(record["source"]), record["at_s"])
