"""Benchmark `bgd`: elastic batch gradient descent while half of the nodes are away, beside its baselines.

Every figure is an objective over all data, or a precision on a test set, of medians over seeds; the note of each says
whether the sentence of the paper holds, in how many of the seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import click
from threadpoolctl import threadpool_limits

from proteus_spot.benchmarks.figure import Figure, figure
from proteus_spot.benchmarks.papers.bgd.picture import draw_curves
from proteus_spot.benchmarks.papers.bgd.runs import (
    BACK,
    CASES,
    L2,
    LOST,
    RULES,
    Case,
    DescentCurve,
    Rule,
    descend_under_preemption,
    partitions_of,
)
from proteus_spot.benchmarks.papers.bgd.runs import ROUNDS as LAST
from proteus_spot.benchmarks.papers.bgd.splice import LONGEST, n_features, splice_set

_NAME = "bgd"
_SEEDS = 5
_EXAMPLES = 7_000
_TEST = 3_000
_POSITIVES = 0.02

Curves = Mapping[Case, DescentCurve]


@dataclass(frozen=True)
class _Claim:
    """One sentence on two figures of a seed: the first is below `factor` times the second."""

    what: str
    beside_is: str
    ours: Callable[[Curves], float]
    beside: Callable[[Curves], float]
    factor: float = 1.0


def _objective(case: Case, round_number: int) -> Callable[[Curves], float]:
    return lambda curves: curves[case].at(round_number)


_CLAIMS = (
    _Claim(f"elastic below Ignore at round {BACK}", "Ignore", _objective("elastic", BACK), _objective("ignore", BACK)),
    _Claim(f"elastic below Stall at round {BACK}", "Stall", _objective("elastic", BACK), _objective("stall", BACK)),
    _Claim(
        f"elastic at most 0.1 % above no failure at round {LAST}",
        "no failure",
        _objective("elastic", LAST),
        _objective("no failure", LAST),
        1.001,
    ),
    _Claim(
        f"elastic below no failure at round {LAST}",
        "no failure",
        _objective("elastic", LAST),
        _objective("no failure", LAST),
    ),
)


@dataclass(frozen=True)
class _Setting:
    """A step rule, a penalty, and the features: n-grams up to `longest` letters, of `factor` times the examples."""

    name: str
    rule: Rule
    longest: int = LONGEST
    factor: int = 1
    l2: float = L2


#: With fewer examples than features, those of the missing partitions are in directions in which the others and the
#: penalty have next to no curvature: hence the line search also with a stronger penalty, and with 25 examples for each
#: feature (the paper has 77).
SETTINGS = (
    *(_Setting(rule, rule) for rule in RULES),
    _Setting("line search, l2 0.01", "line search", l2=0.01),
    _Setting("line search, letters alone", "line search", 1, 2),
    _Setting("L-BFGS, letters alone", "L-BFGS", 1, 2),
)


def run(
    scratch: Path,
    picture: Path | None = None,
    examples: int = _EXAMPLES,
    seeds: int = _SEEDS,
    settings: tuple[_Setting, ...] = SETTINGS,
) -> Iterator[Figure]:
    """Measure on one thread; yield the figures of each setting once it is measured.

    Parameters
    ----------
    picture : target of the picture of the first seed, which is drawn anew after each setting.
    examples : size of the training set.
    """
    del scratch
    first: dict[str, Curves] = {}
    for setting in settings:
        with threadpool_limits(1):
            found = [_curves(setting, examples, seed) for seed in range(seeds)]
        first[setting.name] = found[0]
        if picture is not None:
            note = f"{examples} examples, {100 * _POSITIVES:g} % positive; the first of {seeds} seeds"
            draw_curves(first, note, picture)
        size = f"{setting.factor * examples} examples of {n_features(setting.longest)} features"
        size += f", {100 * _POSITIVES:g} % positive, l2 {setting.l2:g}, {seeds} seeds"
        yield from _figures(setting.name, found, size)


def _curves(setting: _Setting, examples: int, seed: int) -> Curves:
    data = splice_set(setting.factor * examples, _TEST, _POSITIVES, seed, setting.longest)
    parts = partitions_of(data)
    curves = {}
    for case in CASES:
        curve = curves[case] = descend_under_preemption(case, setting.rule, parts, data, setting.l2)
        values = ", ".join(f"{curve.at(number):.4g}" for number in (LOST, BACK, LAST))
        click.echo(
            f"{setting.name}, seed {seed}, {case}: {values} after {LOST}, {BACK}, {LAST} rounds, "
            f"{curve.redone_rounds} of them redone",
            err=True,
        )
    return curves


def _figures(rule: str, found: list[Curves], note: str) -> list[Figure]:
    figures = [_judge(claim, rule, found, note) for claim in _CLAIMS]
    for number in (BACK, LAST):
        for case in ("stall", "ignore"):
            figures.append(
                figure(
                    _NAME,
                    f"{rule}: objective of {case} at round {number}",
                    "",
                    [curves[case].at(number) for curves in found],
                    [curves["no failure"].at(number) for curves in found],
                    "no failure",
                    note,
                )
            )
    redone = [curves["elastic"].redone_rounds for curves in found]
    note += f"; redone rounds of elastic: {min(redone)} to {max(redone)}"
    for number in (BACK, LAST):
        for beside in ("no failure", "ignore", "stall"):
            figures.append(
                figure(
                    _NAME,
                    f"{rule}: AUPRC of elastic at round {number}",
                    "",
                    [curves["elastic"].precision_at(number) for curves in found],
                    [curves[beside].precision_at(number) for curves in found],
                    beside,
                    note,
                )
            )
    figures += _by_second(rule, found, note)
    figures.append(
        figure(
            _NAME,
            f"{rule}: a round of elastic with half of the nodes",
            "s",
            [_seconds_of_a_round(curves["elastic"], LOST, BACK) for curves in found],
            [_seconds_of_a_round(curves["elastic"], 0, LOST) for curves in found],
            "with all of them",
            f"{note}; processor time of the slowest task of each group",
        )
    )
    return figures


def _by_second(rule: str, found: list[Curves], note: str) -> list[Figure]:
    """Return objective and AUPRC of elastic beside the others' at the second in which its nodes are back."""
    values: Mapping[str, Callable[[DescentCurve, float], float]] = {
        "objective": lambda curve, at_s: curve.at(curve.round_at(at_s)),
        "AUPRC": lambda curve, at_s: curve.precision_at(curve.round_at(at_s)),
    }
    back_s = [curves["elastic"].seconds[min(BACK, curves["elastic"].rounds - 1)] for curves in found]
    return [
        figure(
            _NAME,
            f"{rule}: {what} of elastic at the second of its round {BACK}",
            "",
            [value(curves["elastic"], at_s) for curves, at_s in zip(found, back_s, strict=True)],
            [value(curves[beside], at_s) for curves, at_s in zip(found, back_s, strict=True)],
            beside,
            f"{note}; after {median(back_s):.2f} s",
        )
        for what, value in values.items()
        for beside in CASES
        if beside != "elastic"
    ]


def _judge(claim: _Claim, rule: str, found: list[Curves], note: str) -> Figure:
    ours, beside = [claim.ours(curves) for curves in found], [claim.beside(curves) for curves in found]
    holds = median(ours) < claim.factor * median(beside)
    count = sum(a < claim.factor * b for a, b in zip(ours, beside, strict=True))
    verdict = f"{'holds' if holds else 'does not hold'}, in {count} of {len(found)} seeds"
    click.echo(f"{rule}: {claim.what}: {verdict}")
    return figure(_NAME, f"{rule}: {claim.what}: objective", "", ours, beside, claim.beside_is, f"{verdict}; {note}")


def _seconds_of_a_round(curve: DescentCurve, first: int, last: int) -> float:
    last = min(last, len(curve.seconds) - 1)
    return (curve.seconds[last] - curve.seconds[first]) / max(last - first, 1)
