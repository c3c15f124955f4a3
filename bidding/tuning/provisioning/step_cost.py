"""Expected cost of a step: formulas 1 and 2, and the matrix M of step times that they use."""

from collections.abc import Mapping
from math import isfinite

from proteus_spot.bidding.market.model import HOUR_S, InstanceType
from proteus_spot.bidding.market.money import Micros

#: Share of a step that a deadline takes for not divided by vCPUs, on types that were not measured.
SERIAL_SHARE = 0.25


def expected_hour_micros(p_evicted: float, average_micros: Micros, refunded: bool) -> float:
    """Return the expected cost of the next hour of a machine, in micro-dollars: formula 1.

    Parameters
    ----------
    p_evicted : probability that it is evicted within the hour, in [0, 1].
    average_micros : average hourly price of the last hour.
    refunded : whether an eviction makes the hour free; else it is paid for.

    Notes
    -----
    Source: SpotTune, formula (1): (1 - p) * average price * 1 h.
    """
    return (1.0 - p_evicted) * average_micros if refunded else float(average_micros)


def step_micros(hour_micros: float, step_s: float) -> float:
    """Return the expected cost of a step, in micro-dollars: formula 2.

    Parameters
    ----------
    hour_micros : expected cost of an hour; see `expected_hour_micros`.
    step_s : seconds per step: an entry of M.

    Notes
    -----
    Source: SpotTune, formula (2).
    """
    return hour_micros / HOUR_S * step_s


class StepTimes:
    """The matrix M: seconds per step by trial and instance type, measured or estimated.

    Parameters
    ----------
    types : the types on sale.
    earlier_s : seconds per step by type, as earlier sweeps of the same code measured them; may be empty.

    Notes
    -----
    An entry that was measured is its latest measurement. Another is estimated as the product of a base of the type and
    a factor of the trial. The base is what earlier sweeps measured, else c / vCPUs. The factor is the mean ratio of the
    trial's measurements to the bases; for a trial without one, the mean of the other trials' factors.

    Source: SpotTune, section III-A: M starts from the number of CPU cores, and is updated by the latest runs.
    Differs: an entry that was never measured follows those that were, so that its unit is seconds as theirs.
    """

    def __init__(self, types: Mapping[str, InstanceType], earlier_s: Mapping[str, float]) -> None:
        usable_s = {name: step_s for name, step_s in earlier_s.items() if name in types and is_step_time(step_s)}
        scale = sum(step_s * types[name].vcpu for name, step_s in usable_s.items()) / len(usable_s) if usable_s else 1.0
        self._types = types
        self._earlier_s = {name: step_s for name, step_s in earlier_s.items() if is_step_time(step_s)}
        self._bases = {name: usable_s.get(name, scale / kind.vcpu) for name, kind in types.items()}
        #: Trial -> type -> the latest measurement.
        self._measured: dict[int, dict[str, float]] = {}
        self._factors: dict[int, float] = {}
        self._mean_factor: float | None = 1.0

    @property
    def is_measured(self) -> bool:
        """Whether any entry was measured, by this sweep."""
        return bool(self._measured)

    def measure(self, trial: int, instance_type: str, step_s: float) -> None:
        """Enter the latest measurement; one that is not a positive finite number is ignored."""
        if not is_step_time(step_s) or instance_type not in self._bases:
            return
        row = self._measured.setdefault(trial, {})
        if row.get(instance_type) == step_s:
            return
        row[instance_type] = step_s
        self._factors[trial] = sum(value / self._bases[name] for name, value in row.items()) / len(row)
        self._mean_factor = None

    def seconds(self, trial: int, instance_type: str) -> float:
        """Return the seconds per step of a trial on a type; of unknown unit before anything was measured."""
        row = self._measured.get(trial)
        if row is not None and instance_type in row:
            return row[instance_type]
        return self._bases[instance_type] * self._factor(trial)

    def cautious_seconds(self, trial: int, instance_type: str) -> float:
        """Return the seconds per step that a deadline reckons with: more vCPUs that were not measured help less.

        Of an entry that was measured neither by the trial nor by earlier sweeps, `SERIAL_SHARE` of the trial's shortest
        measured step is not divided by vCPUs.
        """
        found = self.seconds(trial, instance_type)
        row = self._measured.get(trial)
        if row is None or instance_type in row or instance_type in self._earlier_s:
            return found
        step_s, vcpus = min((step_s, self._types[name].vcpu) for name, step_s in row.items())
        parallel = (1 - SERIAL_SHARE) * vcpus / self._types[instance_type].vcpu
        return max(found, step_s * (SERIAL_SHARE + parallel))

    def by_type(self) -> dict[str, float]:
        """Return the mean seconds per step by type, for the next sweep of the same code; earlier ones are kept."""
        sums: dict[str, list[float]] = {}
        for _, row in sorted(self._measured.items()):
            for name, step_s in row.items():
                sums.setdefault(name, []).append(step_s)
        return self._earlier_s | {name: sum(values) / len(values) for name, values in sorted(sums.items())}

    def _factor(self, trial: int) -> float:
        if trial in self._factors:
            return self._factors[trial]
        if self._mean_factor is None:
            self._mean_factor = sum(self._factors.values()) / len(self._factors)
        return self._mean_factor


def is_step_time(step_s: float) -> bool:
    """Return whether a measured step time can be used."""
    return isfinite(step_s) and step_s > 0
