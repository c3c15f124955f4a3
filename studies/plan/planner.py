"""Cost and end of a job before it is bought: simulation from many starts on the price history."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from proteus_spot.bidding.backtest.outcomes import Outcome
from proteus_spot.bidding.backtest.runner import run as run_jobs
from proteus_spot.bidding.backtest.schemes import SchemeId
from proteus_spot.bidding.backtest.schemes.scheme_registry import scheme
from proteus_spot.bidding.evictions.table import EvictionTable
from proteus_spot.bidding.evictions.table import fit as fit_evictions
from proteus_spot.bidding.market.model import HOUR_S, Market
from proteus_spot.bidding.market.money import Micros
from proteus_spot.bidding.market.traces import Int64s
from proteus_spot.infra.errors import InputError
from proteus_spot.studies.backtest.backtest_inputs import BacktestInputs, open_inputs
from proteus_spot.studies.backtest.backtest_spec import backtest_spec
from proteus_spot.studies.backtest.job_runs import all_cores
from proteus_spot.studies.job_spec import MOST_RELIABLE
from proteus_spot.studies.market_data.trace_files import Report
from proteus_spot.studies.plan.outlook import Outlook, Recommendation, on_demand_fallback, outlook, rank, recommend
from proteus_spot.studies.plan.plan_spec import ON_DEMAND, PlanSpec, reliable_machines, scheme_of_policy
from proteus_spot.studies.plan.planned_job import PlannedJob, draw_starts, planned_job, scheme_of
from proteus_spot.studies.plan.reliable_machines import ReliableAdvice, advise, counts_to_try

#: Scheme under which a market is simulated alone, unless the job has another of spot machines.
_ALONE = "best"
#: Maximum number of markets simulated alone: those with the lowest mean price per vCPU in the evaluation.
MOST_ALONE = 60
#: Maximum number of types that a note lists.
_NAMED = 5
#: Number of jobs simulated between two progress reports.
_BATCH = 100


@dataclass(frozen=True)
class PlannedScheme:
    """A market at the end of the prices, and the cost of the job if it were bought there alone.

    Attributes
    ----------
    price_micros, on_demand_micros : of one instance an hour, at the end of the prices.
    free_share, free_s : share of the hours of the evaluation, bought at the lowest bid delta ($0.0001 above the price),
        that an eviction made free, and the median seconds that such an hour lasted; None without data.
    """

    market: Market
    price_micros: Micros
    on_demand_micros: Micros
    free_share: float | None
    free_s: float | None
    alone: Outlook


@dataclass(frozen=True)
class JobPlan:
    """The plan of a job; `outlooks` in the order of the request, `candidates` best first.

    Attributes
    ----------
    why_not : by scheme, why the job cannot run under it; empty: it can. The others are only compared.
    alone : scheme under which the candidates were simulated.
    reliable : the recommended scheme with other numbers of reliable machines; None if it holds none.
    fallback : what the machines on demand cost that keep the deadline, and whether the budget allows them; or empty.
    """

    spec: PlanSpec
    job: PlannedJob
    field: BacktestInputs
    notes: tuple[str, ...]
    outlooks: tuple[Outlook, ...]
    recommendation: Recommendation
    candidates: tuple[PlannedScheme, ...]
    why_not: Mapping[str, str]
    alone: str = _ALONE
    reliable: ReliableAdvice | None = None
    fallback: str = ""

    def shown(self, scheme: str) -> str:
        """Return a scheme as tables and pictures name it: with a star where it is only compared."""
        return f"{scheme} *" if self.why_not[scheme] else scheme


def make_plan(spec: PlanSpec, report: Report) -> JobPlan:
    """Return the plan of a job.

    Parameters
    ----------
    report : receives the number of jobs done.

    Raises
    ------
    InputError
        If a file cannot be used, or the history is too short for the job.

    Notes
    -----
    Schemes are fitted to the history before the evaluation, its last part, and simulated in the evaluation; all on
    the same starts.
    """
    field = _open(spec, report)
    job = planned_job(spec, field)
    starts_s = draw_starts(np.random.default_rng(spec.seed), job, field, spec.starts)
    alone = _tried_alone(job, field)
    steps = _ProgressCounter(report, len(starts_s) * (len(spec.schemes) + len(alone) + len(counts_to_try(job))))
    outlooks = tuple(
        outlook(name, _run(name, field.markets, spec, job, field, starts_s, steps), job) for name in spec.schemes
    )
    candidates = list(_candidates(alone, spec, job, field, starts_s, steps))
    why_not = {name: why_not_run(name, spec, job) for name in spec.schemes}
    recommendation = recommend(outlooks, job, why_not)
    reliable = None
    if recommendation.scheme is not None:
        reliable = _reliable(outlooks, recommendation.scheme, spec, job, field, starts_s, steps)
    report(steps.total, steps.total, "done")
    return JobPlan(
        spec=spec,
        job=job,
        field=field,
        notes=(*spec.notes, *_notes(spec, job, field)),
        outlooks=outlooks,
        recommendation=recommendation,
        candidates=tuple(sorted(candidates, key=lambda each: (*rank(each.alone), each.market))),
        why_not=why_not,
        alone=_alone(spec),
        reliable=reliable,
        fallback=on_demand_fallback(job),
    )


def _alone(spec: PlanSpec) -> str:
    return _ALONE if spec.policy in (None, ON_DEMAND) else scheme_of_policy(spec.policy)


class _ProgressCounter:
    """Counter of the jobs done, of all."""

    def __init__(self, report: Report, total: int) -> None:
        self.report, self.total, self.done = report, total, 0

    def say(self, what: str, more: int = 0) -> None:
        self.done += more
        self.report(self.done, self.total, what)


def _open(spec: PlanSpec, report: Report) -> BacktestInputs:
    """Return the history as a backtest opens it; its errors name the options of this verb."""
    asked = backtest_spec(
        prices=spec.prices,
        product=spec.product,
        catalog=spec.catalog,
        region=spec.region,
        markets=spec.markets,
        left_out=spec.left_out,
        evaluate_from=spec.evaluate_from,
        evictions=spec.evictions,
        allow_gaps=spec.allow_gaps or spec.prices is None,  # a generated market is calm there, nothing is missing
        schemes=list({*spec.schemes, _alone(spec)}),
        reference_type=spec.instance_type,
        seed=spec.seed,
    )
    try:
        return open_inputs(asked, report)
    except InputError as error:
        message = str(error)
        for backtest_option, plan_option in (
            ("--reference", "--type"),
            ("--fit-from and --fit-to", "--from"),
            (" and --to", ""),
            (", or give --allow-overlap", ""),
        ):
            message = message.replace(backtest_option, plan_option)
        raise InputError(message) from None


def _run(
    name: str,
    markets: tuple[Market, ...],
    spec: PlanSpec,
    job: PlannedJob,
    field: BacktestInputs,
    starts_s: Int64s,
    steps: _ProgressCounter,
    what: str = "",
) -> Int64s:
    """Return the rows of the jobs, shape (starts, len(Outcome))."""
    packed = field.packed(markets)
    scheme, changes = scheme_of(name, spec, job)
    rows = np.empty((len(starts_s), len(Outcome)), dtype=np.int64)
    for first in range(0, len(starts_s), _BATCH):
        batch = slice(first, first + _BATCH)
        steps.say(what or name)
        # The hours matter only for values relative to the reference: the work itself is among the changes.
        ran = run_jobs(*packed, scheme, starts_s[batch], 1, job.reference, threads=all_cores(), **changes)
        rows[batch] = ran.rows
        steps.say(what or name, len(ran.rows))
    return rows


def _possible(job: PlannedJob, field: BacktestInputs) -> list[Market]:
    """Return the markets in the eviction table whose machines fit in the cap."""
    fitted = (market for market in field.markets if market in field.evictions.rows)
    return [market for market in fitted if field.types[market.instance_type].vcpu <= job.max_spot_vcpus]


def _types(markets: list[Market]) -> set[str]:
    return {market.instance_type for market in markets}


def _tried_alone(job: PlannedJob, field: BacktestInputs) -> list[Market]:
    """Return the markets that are simulated alone, sorted."""
    possible, window = _possible(job, field), field.windows.evaluation

    def mean_micros(market: Market) -> float:
        shown = field.traces[market].between(window.from_s, window.until_s)
        held_s = np.diff(np.maximum(shown.times_s, window.from_s), append=window.until_s + 1)
        return float(np.average(shown.prices_micros, weights=held_s)) / field.types[market.instance_type].vcpu

    return sorted(sorted(possible, key=mean_micros)[:MOST_ALONE])


def _candidates(
    markets: list[Market],
    spec: PlanSpec,
    job: PlannedJob,
    field: BacktestInputs,
    starts_s: Int64s,
    steps: _ProgressCounter,
) -> Iterator[PlannedScheme]:
    window = field.windows.evaluation
    lately = fit_evictions(field.traces, window.from_s, window.until_s)
    for market in markets:
        rows = _run(_alone(spec), (market,), spec, job, field, starts_s, steps, str(market))
        price = field.traces[market].price_at(window.until_s)
        assert price is not None, "a market with prices in the fit has one ever after"
        yield PlannedScheme(
            market,
            price,
            field.types[market.instance_type].on_demand_micros,
            *_free(lately, market),
            outlook(_alone(spec), rows, job),
        )


def _reliable(
    outlooks: tuple[Outlook, ...],
    name: str,
    spec: PlanSpec,
    job: PlannedJob,
    field: BacktestInputs,
    starts_s: Int64s,
    steps: _ProgressCounter,
) -> ReliableAdvice | None:
    def tried(changed: PlannedJob) -> Outlook:
        what = f"{name}, {changed.reliable_count} reliable"
        return outlook(name, _run(name, field.markets, spec, changed, field, starts_s, steps, what), changed)

    own = next(each for each in outlooks if each.scheme == name)
    return advise(name, spec, job, own, tried)


def _free(lately: EvictionTable, market: Market) -> tuple[float | None, float | None]:
    """Return how often an hour at the lowest bid delta became free, and the median seconds that it lasted."""
    if market not in lately.rows:
        return None, None
    beta, median_s = lately.lookup(market, 0)
    return beta, median_s if beta else None


def _notes(spec: PlanSpec, job: PlannedJob, field: BacktestInputs) -> Iterator[str]:
    windows = field.windows
    for note in field.notes:
        if not note.startswith("fit on the first two thirds"):  # stated below, in this verb's words
            yield note
    yield (
        f"learnt from {windows.fit}, tried from {windows.evaluation}: {spec.starts} starts, "
        f"{job.window_s / HOUR_S:.0f} h each at most"
    )
    if job.deadline_s is not None and job.deadline_s > job.window_s:
        yield (
            f"--deadline {job.deadline_s / HOUR_S:g}: a job is tried for {job.window_s / HOUR_S:.0f} h at most, for "
            "the history is short; one that is not done by then counts as late"
        )
    possible = _possible(job, field)
    large = sorted({each.instance_type for each in field.markets if each in field.evictions.rows} - _types(possible))
    if large and job.max_spot_vcpus:
        more = f" and {len(large) - _NAMED} more types" if len(large) > _NAMED else ""
        names = ", ".join(large[:_NAMED])
        yield f"not bid in, for one machine is more than --max-vcpus {job.max_spot_vcpus}: {names}{more}"
    if len(possible) > MOST_ALONE:
        yield f"tried alone are the {MOST_ALONE} of {len(possible)} markets that were cheapest per vCPU on average"


def why_not_run(name: str, spec: PlanSpec, job: PlannedJob) -> str:
    """Return why the job of `spec` cannot run under a scheme; empty: it can."""
    found, changes = scheme_of(name, spec, job)
    if found.rule is SchemeId.NONE:
        return _why_not_on_demand(spec, job)
    if found.policy is None:
        return "no policy decides so"
    if not found.setting(job.reference, 1, **changes).reliable_count:
        return "it holds no reliable machine, and a job holds at least 1"
    own = spec.policy
    if own is not None and (own == ON_DEMAND or scheme(name) != scheme(scheme_of_policy(own))):
        return f"the policy of {spec.job_file} is {own}"
    return ""


def _why_not_on_demand(spec: PlanSpec, job: PlannedJob) -> str:
    if job.machines > MOST_RELIABLE:
        return f"a job holds at most {MOST_RELIABLE} reliable machines"
    if spec.job_file is None:
        return ""
    kind = job.reference.instance_type.name
    is_own = reliable_machines(spec.reliable or "0") == (job.machines, kind)
    if spec.policy in (None, ON_DEMAND) and is_own:
        return ""
    return f"it wants policy: {ON_DEMAND} and reliable: {{count: {job.machines}, instance_type: {kind}}}"
