"""Elasticity models: the time that a job loses at an eviction and at a change of the footprint.

The defaults are the papers'. Measurements of a real run replace them: `load_elasticity` reads numbers by name,
`AgileML.from_measured` takes them from the figures of a training job.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from math import isfinite, isinf, log1p, sqrt
from statistics import fmean, median
from types import MappingProxyType
from typing import Any, Self

from proteus_spot.bidding.market.model import HOUR_S

#: Maximum seconds between two checkpoints, however calm a market is.
_LONGEST_INTERVAL_S = 24 * HOUR_S
#: Clocks after an event over which its cost is measured, and the clocks after them that show the new pace.
_DISTURBED, _CALM = 3, 10
_PPM = 1_000_000


@dataclass(frozen=True, slots=True)
class AgileML:
    """AgileML's elasticity: nothing is lost, and reliable machines hold the state.

    Attributes
    ----------
    eviction_overhead_s, resize_overhead_s : λ and σ, seconds in which the whole footprint makes no progress.
    scaling_efficiency : φ, in (0, 1].
    reliable_count, reliable_vcpus : on-demand machines that are held throughout, and the vCPUs of one.
    reliable_works : whether they compute too (stages 1 and 2).

    Notes
    -----
    Source: Proteus (EuroSys 2017), Table 2 and section 6.3; the paper gives no λ and σ, 60 and 20 s are this project's.
    """

    eviction_overhead_s: float = 60.0
    resize_overhead_s: float = 20.0
    scaling_efficiency: float = 1.0
    reliable_count: int = 3
    reliable_vcpus: int = 4
    reliable_works: bool = False

    def __post_init__(self) -> None:
        _check(self, shares=("scaling_efficiency",))

    def settings(self) -> dict[str, int]:
        """Return the fields of `bidding.backtest.parameters.JobParameters` that follow, overheads in whole seconds."""
        return {
            "eviction_overhead_s": round(self.eviction_overhead_s),
            "resize_overhead_s": round(self.resize_overhead_s),
            "efficiency_ppm": round(self.scaling_efficiency * _PPM),
            "reliable_count": self.reliable_count,
            "reliable_vcpus": self.reliable_vcpus,
            "reliable_works": int(self.reliable_works),
        }

    @classmethod
    def from_measured(cls, figures: Mapping[str, Any], **others: float) -> Self:
        """Return the elasticity measured in a training job; λ or σ without a measurement keep their default.

        Parameters
        ----------
        figures : the output of `proteus train --json`; `seconds_by_clock` and `events` (`action`, `clock`) are used.
        **others : further fields, unchanged.

        Raises
        ------
        ValueError
            If `figures` do not hold these two.

        Notes
        -----
        An event costs what the three clocks after it took longer than as many at the pace that follows (the median of
        the next ten, or as many as there are before the next event). λ is the mean over notices and kills, σ that over
        joins and drains, neither below 0.
        """
        try:
            seconds = [float(each) for each in figures["seconds_by_clock"]]
            left_out = int(figures.get("clocks_left_out") or 0)  # of a long job, by the seconds of its last clocks
            after = [(str(event["action"]), int(event["clock"]) - left_out) for event in figures["events"]]
            events = [(action, clock) for action, clock in after if clock > 0 or not left_out]
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not the figures of a training job: {error!r}") from None
        measured: dict[str, Any] = {}
        for name, actions in (
            ("eviction_overhead_s", ("notice", "kill")),
            ("resize_overhead_s", ("join", "drain")),
        ):
            clocks = sorted({clock for action, clock in events if action in actions})
            every = sorted({clock for _, clock in events})
            costs = [cost for clock in clocks if (cost := _cost_of_event(seconds, clock, every)) is not None]
            if costs:
                measured[name] = max(fmean(costs), 0.0)
        return cls(**(measured | others))


@dataclass(frozen=True, slots=True)
class Checkpointing:
    """Elasticity by checkpoints: an eviction leaves the last one, from which all machines restart.

    Attributes
    ----------
    overhead : share of the time that goes to checkpoints, in [0, 1).
    interval_s : seconds from one checkpoint to the next.
    restart_s : seconds without progress after an eviction.
    resize_overhead_s : σ, the stop in which machines are added: state saved, everything started again.

    Notes
    -----
    Source: Proteus (EuroSys 2017), section 6.3 (17 % of the time) and 8 (adding machines takes a stop and a restart).
    The paper's interval follows the mean time to failure, as in Flint; it does not say which it was. Half an hour is
    this project's; `for_mean_time` computes one.
    """

    overhead: float = 0.17
    interval_s: float = HOUR_S / 2
    restart_s: float = 300.0
    resize_overhead_s: float = 300.0

    def __post_init__(self) -> None:
        _check(self)
        if self.overhead >= 1:
            raise ValueError(f"overhead is {self.overhead}: checkpoints must leave a share of the time")
        if self.interval_s < 1:
            raise ValueError(f"interval_s is {self.interval_s}: it must be at least a second")

    @property
    def write_s(self) -> float:
        """Seconds that one checkpoint takes."""
        return self.overhead * self.interval_s

    @property
    def eviction_overhead_s(self) -> float:
        """λ: the restart, and half an interval of lost work, for an eviction is as likely in each of its seconds."""
        return self.restart_s + self.interval_s / 2

    def settings(self) -> dict[str, int]:
        """Return the fields of `bidding.backtest.parameters.JobParameters` that follow, in whole seconds."""
        return {
            "eviction_overhead_s": 0,  # what is lost is simulated
            "resize_overhead_s": round(self.resize_overhead_s),
            "efficiency_ppm": round((1 - self.overhead) * _PPM),
            "checkpoint_s": round(self.interval_s),
            "restart_s": round(self.restart_s),
            "reliable_count": 0,
        }

    def every(self, interval_s: float) -> "Checkpointing":
        """Return the same with a checkpoint every `interval_s` seconds, each of which takes as long as before.

        Raises
        ------
        ValueError
            If a checkpoint takes as long as that, or longer.
        """
        return replace(self, interval_s=interval_s, overhead=self.write_s / interval_s)

    def for_mean_time(self, mean_s: float) -> "Checkpointing":
        """Return the same with the interval that loses least where an eviction comes every `mean_s` seconds.

        At most a day. `mean_s` may be infinite; see `mean_time_to_eviction_s`.

        Raises
        ------
        ValueError
            If checkpoints take no time, or `mean_s` is not above 0.

        Notes
        -----
        √(2 δ M) (1 + √(δ / 2M) / 3 + δ / 18M), with δ the time of one checkpoint and M the mean time to eviction; M + δ
        where δ >= 2M.

        Source: Daly, A higher order estimate of the optimum checkpoint interval for restart dumps (FGCS 2006),
        equation (37); the first factor alone is Young's (CACM 1974).
        Differs: Daly's interval is between two checkpoints, this one from start to start, one checkpoint more.
        """
        delta_s = self.write_s
        if not (delta_s > 0 and mean_s > 0):
            raise ValueError("no best interval: checkpoints and the mean time to eviction must take some time")
        if isinf(mean_s):
            best_s = float(_LONGEST_INTERVAL_S)
        elif delta_s >= 2 * mean_s:
            best_s = mean_s + delta_s
        else:
            part = delta_s / (2 * mean_s)
            best_s = sqrt(2 * delta_s * mean_s) * (1 + sqrt(part) / 3 + part / 9)
        return self.every(min(best_s, float(_LONGEST_INTERVAL_S)))


Elasticity = AgileML | Checkpointing

_MODELS: Mapping[str, type[AgileML] | type[Checkpointing]] = MappingProxyType(
    {"agileml": AgileML, "checkpointing": Checkpointing}
)


def load_elasticity(record: Mapping[str, Any]) -> Elasticity:
    """Return the elasticity whose name is `record`'s ``model``; its other entries replace the defaults by name.

    Raises
    ------
    ValueError
        Naming the entry that is unknown, missing or no such number.
    """
    name = record.get("model")
    kind = _MODELS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise ValueError(f"model is {name!r}: it must be one of {', '.join(_MODELS)}")
    defaults = {field.name: field.default for field in fields(kind)}
    values: dict[str, Any] = {}
    for entry, value in record.items():
        if entry == "model":
            continue
        if entry not in defaults:
            raise ValueError(f"{entry}: {name} has no such number; it has {', '.join(defaults)}")
        want, fits = _wanted(defaults[entry], value)
        if not fits:
            raise ValueError(f"{entry} is {value!r}: it must be {want}")
        values[entry] = value
    return kind(**values)


def elasticity_record(elasticity: Elasticity) -> dict[str, Any]:
    """Return what `load_elasticity` reads as the same elasticity."""
    name = next(name for name, kind in _MODELS.items() if isinstance(elasticity, kind))
    return {"model": name, **asdict(elasticity)}


def mean_time_to_eviction_s(eviction_prob: float) -> float:
    """Return the mean seconds to an eviction that comes within the hour with probability β, at a constant hazard.

    Infinite for 0, and 0 for 1.
    """
    if not 0 <= eviction_prob <= 1:
        raise ValueError(f"a probability is {eviction_prob}")
    if eviction_prob == 0:
        return float("inf")
    return 0.0 if eviction_prob == 1 else -HOUR_S / log1p(-eviction_prob)


def _wanted(default: Any, value: Any) -> tuple[str, bool]:
    """Return what a value must be that replaces `default`, and whether it is."""
    if isinstance(default, bool):
        return "true or false", isinstance(value, bool)
    if isinstance(default, int):
        return "a whole number", isinstance(value, int) and not isinstance(value, bool)
    return "a number", isinstance(value, int | float) and not isinstance(value, bool)


def _check(elasticity: AgileML | Checkpointing, shares: Sequence[str] = ()) -> None:
    for name, value in asdict(elasticity).items():
        if not isfinite(value) or value < 0:
            raise ValueError(f"{name} is {value}: it must be a number of 0 or more")
        if name in shares and not 0 < value <= 1:
            raise ValueError(f"{name} is {value}: it must be in (0, 1]")


def _cost_of_event(seconds: Sequence[float], clock: int, events: Sequence[int]) -> float | None:
    """Return the seconds that the event at `clock` cost; None where no pace after it is known."""
    later = [other for other in events if other > clock]
    until = min(later[0] if later else len(seconds), clock + _DISTURBED + _CALM)
    calm = seconds[clock + _DISTURBED : until]  # entry i is clock i + 1
    if not calm:
        return None
    return sum(seconds[clock : clock + _DISTURBED]) - _DISTURBED * median(calm)
