"""How fast machines work, by type: what the nodes of jobs were measured to do, pooled; by their size until then.

The rates of a job have the scale of its data, so types are compared within jobs: the logarithm of a type's rate in a
job is taken for the sum of the job's and the type's. A type of which nothing is known works as the measured ones do on
average.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import exp, log
from statistics import median

import numpy as np

from proteus_spot.bidding.facts.records import Source

#: Tasks from which on the rate of a node counts.
LEAST_TASKS = 30
#: Nodes of a type that the prior stands for: that types differ in nothing but their size.
_PRIOR_NODES = 1.0
#: Highest speed, and the inverse of the lowest; a node counts as at most so many times off the median of its job.
MOST = 8.0


@dataclass(frozen=True, slots=True)
class NodeWork:
    """What a node has done: tasks, their work in the job's own measure, and the seconds that their kernels took."""

    tasks: int
    work: float
    seconds: float


@dataclass(frozen=True, slots=True)
class TypeWork:
    """What the nodes of one type have done in one job, by their names, up to `at_s`.

    A node works on as many tasks at a time as its size, so that work by seconds is that of one unit.
    """

    at_s: int
    job_id: str
    app: str
    unit: str
    instance_type: str
    nodes: dict[str, NodeWork]

    def log_rates(self) -> list[float]:
        """Return the logarithms of the rates that count, in work a second of a unit."""
        counts = (each for each in self.nodes.values() if each.tasks >= LEAST_TASKS)
        return [log(each.work / each.seconds) for each in counts if each.work > 0 and each.seconds > 0]


@dataclass(frozen=True, slots=True)
class TypeSpeed:
    """The work of a unit of a type, as a multiple of the usual; of so many nodes, the newest measured at `at_s`."""

    value: float
    nodes: int
    at_s: int
    source: Source = Source.OWN

    def age_s(self, now_s: int) -> int:
        """Return how old it is."""
        return max(now_s - self.at_s, 0)

    def in_words(self, now_s: int) -> str:
        """Return it with its age, in a few words."""
        nodes = f"{self.nodes} node{'s' * (self.nodes != 1)}"
        return f"{self.value:.2f} times the usual speed ({nodes}, {self.age_s(now_s) // 60} min ago)"


def speeds_by_application(works: Iterable[TypeWork]) -> dict[str, dict[str, TypeSpeed]]:
    """Return the speeds of types by the application that was measured, ``APP`` or ``APP by gpu``."""
    groups: dict[str, list[TypeWork]] = {}
    for each in works:
        groups.setdefault(application_name(each.app, each.unit), []).append(each)
    return {name: speeds_of(group) for name, group in sorted(groups.items())}


def application_name(app: str, unit: str) -> str:
    """Return the name under which the speeds of an application are kept, by what its jobs count."""
    return app if unit == "vcpu" else f"{app} by {unit}"


def speeds_of(works: Iterable[TypeWork]) -> dict[str, TypeSpeed]:
    """Return the speed of each type that was measured next to another one; the order of `works` does not matter.

    Parameters
    ----------
    works : of one application and one unit.

    Notes
    -----
    Least squares of the medians of each type in each job, weighted by the number of nodes, with a prior of
    `_PRIOR_NODES` at speed 1: an additive two-way fit with shrinkage.

    *Source*: two-way tables, Tukey, "Exploratory Data Analysis" (1977), chapter 10. *Differs*: medians are taken in the
    cells alone, which may be missing; the effects of types are shrunk (ridge regression).
    """
    rates: dict[str, dict[str, list[float]]] = {}
    newest: dict[str, int] = {}
    for each in works:
        if found := each.log_rates():
            rates.setdefault(each.job_id, {}).setdefault(each.instance_type, []).extend(found)
            newest[each.instance_type] = max(each.at_s, newest.get(each.instance_type, each.at_s))
    jobs = sorted(job for job, kinds in rates.items() if len(kinds) > 1)  # one alone says nothing of its type
    kinds = sorted({kind for job in jobs for kind in rates[job]})
    rows, wanted, nodes = [], [], dict.fromkeys(kinds, 0)
    for at, job in enumerate(jobs):
        middle = median(sorted(rate for cell in rates[job].values() for rate in cell))
        for kind, cell in sorted(rates[job].items()):
            near = [min(max(rate, middle - log(MOST)), middle + log(MOST)) for rate in cell]
            row = np.zeros(len(jobs) + len(kinds))
            row[[at, len(jobs) + kinds.index(kind)]] = len(cell) ** 0.5
            rows.append(row)
            wanted.append(len(cell) ** 0.5 * median(near))
            nodes[kind] += len(cell)
    for at in range(len(kinds)):
        row = np.zeros(len(jobs) + len(kinds))
        row[len(jobs) + at] = _PRIOR_NODES**0.5
        rows.append(row)
        wanted.append(0.0)
    if not kinds:
        return {}
    effects = np.linalg.lstsq(np.array(rows), np.array(wanted), rcond=None)[0][len(jobs) :]
    return {
        kind: TypeSpeed(exp(min(max(effect, -log(MOST)), log(MOST))), nodes[kind], newest[kind])
        for kind, effect in zip(kinds, effects.tolist(), strict=True)
    }
