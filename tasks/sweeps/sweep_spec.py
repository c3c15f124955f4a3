"""The description of a sweep. `sweep.yaml` and the Prefect form of sweep/sweep have its fields."""

import json
import math
import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, ValidationError, field_validator, model_validator

from proteus_spot.bidding.billing import BillingModel
from proteus_spot.bidding.market.model import Market
from proteus_spot.bidding.market.money import Micros, to_micros
from proteus_spot.bidding.tuning.space import (
    MOST_TRIALS,
    Parameter,
    Params,
    check_names,
    grid,
    grid_size,
    parse_parameter,
    setting_key,
    setting_of,
)
from proteus_spot.infra.clock import SystemClock
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.extras import need_extra
from proteus_spot.infra.files import read_text
from proteus_spot.infra.structured_text import read_yaml
from proteus_spot.infra.validation import first_fault
from proteus_spot.psengine.apps.registry import BUILT_IN
from proteus_spot.studies.form_fields import (
    DATED_ID_PATTERN,
    MOST_COUNT,
    RECORDED,
    BillingName,
    BudgetUsd,
    DeadlineText,
    FlatPrice,
    FormModel,
    JobId,
    Location,
    MarketName,
    RepriceName,
    check_id,
    dated,
    spot_billing,
)
from proteus_spot.studies.times import day, parse_deadline
from proteus_spot.tasks.sweeps.markets import MarketSelection

#: Samplers of Optuna that need nothing but a seed. The grid and random draws are our own.
OPTUNA_SAMPLERS = (
    *("TPESampler", "CmaEsSampler", "GPSampler", "NSGAIISampler", "NSGAIIISampler", "QMCSampler"),
    *("BruteForceSampler", "RandomSampler"),
)
GRID, RANDOM = "grid", "random"
SAMPLERS = (GRID, RANDOM, *OPTUNA_SAMPLERS)
#: Characters of a sweep's name in an id made of it, and of the flow run's id behind it: its last, which are random.
_NAME_CHARACTERS, _RUN_CHARACTERS = 27, 12
#: Steps of a trial: its curve is held in memory.
_MOST_STEPS = 10_000_000
#: What pydantic calls the two forms of `markets`; no user wrote it.
_FORMS = re.compile(r"^markets\.(names|selection)\b")


def _sampler(name: str) -> str:
    """Return a sampler by the name we know it by: `tpe` and `TPE` are TPESampler."""
    for sampler in SAMPLERS:
        if name.strip().lower() in (sampler.lower(), sampler.lower().removesuffix("sampler")):
            return sampler if name.strip().lower() != RANDOM else RANDOM
    raise ValueError(f"{name[:40]!r} is not known; use one of {', '.join(SAMPLERS)}")


def _form_of_markets(value: Any) -> str | None:
    if isinstance(value, list | tuple):
        return "names"
    return "selection" if isinstance(value, Mapping | MarketSelection) else None


def _any_of(schema: dict[str, Any]) -> None:
    """Say anyOf, which the Prefect form draws; it draws no oneOf."""
    schema["anyOf"] = schema.pop("oneOf")


def _parameter(record: dict[str, Any]) -> dict[str, Any]:
    parse_parameter(record)  # raises an error that says what to write
    return record


class Metric(FormModel):
    """The number that a trial reports at its steps, and by which trials are compared."""

    name: str = Field(min_length=1, max_length=100, title="Name", description="As in trial.report(step, NAME=…).")
    direction: Literal["minimize", "maximize"] = Field("minimize", title="Direction")
    bound: float | None = Field(
        None, title="Best possible value", description="Of maximize: what a curve rises to at most. Empty: 1."
    )

    @field_validator("name")
    @classmethod
    def _is_a_keyword(cls, name: str) -> str:
        if not name.isidentifier():
            raise ValueError(
                f"{name[:40]!r} is not a name of a metric; write letters, digits and underscores, as in loss"
            )
        return name

    @model_validator(mode="after")
    def _is_bounded_above(self) -> "Metric":
        if self.bound is not None and self.direction == "minimize":
            raise ValueError("bound is for maximize; leave it out, or write direction: maximize")
        return self


class EarlierTrial(FormModel):
    """A trial of an earlier sweep of the same metric: its setting, and the value that it came to."""

    params: dict[str, Any]
    value: float = Field(allow_inf_nan=False)
    finished: bool = Field(True, description="Whether it was trained to its end: then a grid does not try it again.")


class SweepSpec(FormModel):
    """A hyper-parameter sweep. The same `sweep_id` never runs twice: a second run goes on with it."""

    sweep: JobId = Field(title="Sweep", description="Name: lower-case letters, digits and dashes.")
    trial: str = Field(
        title="Trial",
        description="module:function, called as train(trial), or an application of the engine, as in mlr.",
    )
    code: Location = Field(
        "", title="Code", description="Path or URL of the .py file or wheel that holds module:function."
    )
    requirements: Location = Field(
        "", title="Requirements", description="File of packages that the code needs. Empty: those of Proteus."
    )
    data: Location = Field("", title="Data", description="Path or URL of a file, as trial.data. Empty: none.")
    space: dict[str, Annotated[dict[str, Any], AfterValidator(_parameter)]] = Field(
        title="Search space",
        description='By parameter: {"choice": [VALUE, …]}, or {"int" | "uniform" | "log": [LOW, HIGH], "points": N}.',
    )
    sampler: Annotated[str, AfterValidator(_sampler), Field(json_schema_extra={"enum": list(SAMPLERS)})] = Field(
        GRID, title="Sampler", description="grid, random, or the name of an Optuna sampler."
    )
    trials: int | None = Field(
        None, ge=1, le=MOST_TRIALS, title="Trials", description="Number of trials. Empty for a grid: all its settings."
    )
    first: list[dict[str, Any]] = Field(
        default_factory=list,
        max_length=MOST_TRIALS,
        title="First settings",
        description="Settings that are tried before all others, each with a value of every parameter.",
    )
    earlier: list[EarlierTrial] = Field(
        default_factory=list,
        max_length=MOST_TRIALS,
        title="Earlier trials",
        description="Trials of earlier sweeps: samplers learn from them, and a grid does not repeat finished ones. In "
        "a file also names of results, as --json writes them.",
    )
    metric: Metric = Field(title="Metric")
    max_trial_steps: int = Field(ge=1, le=_MOST_STEPS, title="Steps of a trial")
    stop: Literal["earlycurve", "asha", "median", "none"] = Field("earlycurve", title="Stopping rule")
    theta: float = Field(0.7, gt=0, le=1, title="θ: share of the steps after which the final metric is predicted")
    mcnt: int = Field(3, ge=1, le=MOST_TRIALS, title="Trials that go on after θ")
    predictor: Literal["table", "revpred", "tributary", "logistic", "none"] = Field(
        "table", title="Predictor of evictions"
    )
    parallel: int = Field(8, ge=1, le=1000, title="Trials at once")
    checkpoint_minutes: float = Field(5.0, gt=0, le=MOST_COUNT, title="Minutes between uploads of a trial's state")
    markets: Annotated[
        Annotated[list[MarketName], Field(min_length=1, title="TYPE/ZONE each"), Tag("names")]
        | Annotated[MarketSelection, Tag("selection")],
        Discriminator(
            _form_of_markets,
            custom_error_type="markets",
            custom_error_message="must be a list of TYPE/ZONE, or a mapping with cpus, memory_gib, types and zones",
        ),
    ] = Field(
        default_factory=lambda: MarketSelection(cpus="2+", memory_gib="4+"),
        title="Markets",
        description="Where trials may run: TYPE/ZONE each, or machines by size, as in cpus 2+ and memory_gib 4+.",
        json_schema_extra=_any_of,
    )
    billing: BillingName = "per-second-first-hour-free"
    reprice: RepriceName = None
    flat_price: FlatPrice = None
    on_demand: bool = Field(
        False,
        title="On demand",
        description="Buy machines on demand while all spot markets stand above those prices. Else trials wait.",
    )
    budget_usd: BudgetUsd = Field(
        None,
        title="Budget",
        description="Dollars that the sweep spends at most; when they are reached its trials checkpoint and it stops. "
        "Empty: no limit.",
    )
    deadline: DeadlineText = Field(
        None,
        title="Deadline",
        description="90m or 12h from the submission, or a time with its zone, by the market's clock. When the time "
        "gets short, trials go on on demand. Empty: none.",
    )
    seed: int = Field(0, ge=0, le=MOST_COUNT, title="Seed")
    sweep_id: str = Field(
        "",
        title="Id",
        description="Of a sweep to go on with. Empty: the name and the flow run's id, a new sweep. {date} here, in the "
        "name or in the data is the day (UTC) for which a schedule has the run.",
        json_schema_extra={"pattern": rf"^$|{DATED_ID_PATTERN}"},
    )

    @field_validator("trial")
    @classmethod
    def _is_a_trial(cls, trial: str) -> str:
        module, _, name = trial.partition(":")
        if trial not in BUILT_IN and not (name.isidentifier() and all(map(str.isidentifier, module.split(".")))):
            raise ValueError(
                f"{trial[:60]!r} is not known; write module:function, or one of {', '.join(sorted(BUILT_IN))}"
            )
        return trial

    @field_validator("space")
    @classmethod
    def _has_parameters(cls, space: dict[str, Any]) -> dict[str, Any]:
        check_names(list(space))
        return space

    @field_validator("sweep_id")
    @classmethod
    def _is_an_id_or_empty(cls, sweep_id: str) -> str:
        return check_id(sweep_id) if sweep_id else sweep_id

    @model_validator(mode="after")
    def _has_settings(self) -> "SweepSpec":
        if self.sampler == GRID:
            try:
                size = grid_size(self.parameters)
            except ValueError as error:
                raise ValueError(f"space.{error}") from None
            if size > MOST_TRIALS:
                raise ValueError(
                    f"space: the grid has {size} settings; at most {MOST_TRIALS} are tried: give fewer points"
                )
            if self.trials is not None:
                raise ValueError("trials: a grid tries all its settings; leave trials out, or write sampler: random")
        elif self.trials is None:
            raise ValueError(f"trials: is missing; sampler {self.sampler} needs a number of trials")
        for index, values in enumerate(self.first):
            try:
                setting_of(self.parameters, values)
            except ValueError as error:
                raise ValueError(f"first.{index}.{error}") from None
        if self.trials is not None and len(self.first) > self.trials:
            raise ValueError(
                f"first: has {len(self.first)} settings for {self.trials} trials; give fewer, or more trials"
            )
        if not self.trial_count:
            raise ValueError("earlier: every setting of the grid was trained to its end; there is nothing left to try")
        return self

    @model_validator(mode="after")
    def _code_is_given(self) -> "SweepSpec":
        if self.trial in BUILT_IN and (self.code or self.requirements):
            field = "code" if self.code else "requirements"
            raise ValueError(f"{field}: trial {self.trial} is an application of the engine; leave {field} out")
        if self.trial not in BUILT_IN and not self.code:
            raise ValueError(f"code: is missing; give the .py file or wheel that holds {self.trial}")
        return self

    @cached_property
    def parameters(self) -> Mapping[str, Parameter]:
        """The search space, in the order of the names: databases and forms keep no other, and draws depend on it."""
        return {name: parse_parameter(record) for name, record in sorted(self.space.items())}

    @property
    def settings(self) -> tuple[Params, ...]:
        """The settings that are known before any trial, by their numbers: the first ones, then those of a grid."""
        first = tuple(setting_of(self.parameters, values) for values in self.first)
        if self.sampler != GRID:
            return first
        done = {setting_key(trial.params) for trial in self.known_trials if trial.finished}
        done |= set(map(setting_key, first))
        return (*first, *(setting for setting in grid(self.parameters) if setting_key(setting) not in done))

    @property
    def known_trials(self) -> tuple[EarlierTrial, ...]:
        """The earlier trials whose settings are in this sweep's space; others say nothing of it."""
        known = []
        for trial in self.earlier:
            try:
                known.append(trial.model_copy(update={"params": setting_of(self.parameters, trial.params)}))
            except ValueError:
                continue
        return tuple(known)

    @property
    def trial_count(self) -> int:
        """The number of trials."""
        if self.trials is not None:
            return self.trials
        return len(self.settings) if self.first or self.earlier else grid_size(self.parameters)

    @property
    def is_built_in(self) -> bool:
        """Whether a trial is an application of the engine."""
        return self.trial in BUILT_IN

    @property
    def job_id(self) -> str:
        """The id under which a sweep is recorded, which is a job's in the state database."""
        return self.sweep_id or self.sweep

    @property
    def billing_model(self) -> BillingModel:
        """How spot machines are charged."""
        return spot_billing(self.billing, self.flat_price, self.reprice)

    @property
    def budget_micros(self) -> Micros | None:
        """The budget in micro-dollars; None: no limit."""
        return None if self.budget_usd is None else to_micros(self.budget_usd)

    def deadline_s(self, submitted_s: float) -> int | None:
        """Return the deadline of the sweep if submitted at `submitted_s`, seconds since the epoch; None: none."""
        return None if self.deadline is None else parse_deadline(self.deadline).time_s(submitted_s)

    def extends(self, begun: "SweepSpec", begun_at_s: float) -> bool:
        """Return whether it is `begun` with more trials, a larger budget or a later deadline, and no other change.

        Parameters
        ----------
        begun_at_s : when that sweep was begun: a deadline may count from then.
        """
        trials = {"trials": begun.trials, "space": begun.space if self.sampler == GRID else self.space}
        if self.model_copy(update=trials | {"budget_usd": begun.budget_usd, "deadline": begun.deadline}) != begun:
            return False
        sizes, begun_sizes = self._sizes(begun_at_s), begun._sizes(begun_at_s)
        pairs = list(zip(sizes, begun_sizes, strict=True))
        return sizes != begun_sizes and all(new >= old for new, old in pairs)

    def _sizes(self, begun_at_s: float) -> tuple[float, ...]:
        deadline_s = self.deadline_s(begun_at_s)
        return (
            self.trial_count,
            math.inf if self.budget_usd is None else self.budget_usd,
            math.inf if deadline_s is None else deadline_s,
        )

    def extends_recorded(self, begun: Mapping[str, Any], begun_at_s: float) -> bool:
        """Return whether it is a recorded description with more trials or larger limits, and no other change."""
        return self.extends(SweepSpec.model_validate(dict(begun), context=RECORDED), begun_at_s)

    def on(self, day: str) -> "SweepSpec":
        """Return the sweep with `day`, as in 2026-01-31, where its name, its id and its data say ``{date}``."""
        names = ("sweep", "sweep_id", "data")
        return self.model_copy(update={name: dated(getattr(self, name), day) for name in names})

    def for_run(self, run_id: str) -> "SweepSpec":
        """Return the sweep with an id: its own, or one of its name and the id of the flow run."""
        if self.sweep_id:
            return self
        run = re.sub(r"[^a-z0-9]", "", run_id.lower())[-_RUN_CHARACTERS:]
        return self.model_copy(update={"sweep_id": f"{self.sweep[:_NAME_CHARACTERS].rstrip('-')}-{run}"})

    def in_markets(self, markets: tuple[Market, ...]) -> "SweepSpec":
        """Return the sweep with its markets by name, as it is recorded."""
        return self.model_copy(update={"markets": [str(market) for market in markets]})


def sweep_name(path: Path) -> str:
    """Return the name of a sweep whose file gives none: the file's, in the letters of a name."""
    return re.sub(r"[^a-z0-9]+", "-", path.stem.lower()).strip("-")[:40].rstrip("-") or "sweep"


def parse_sweep(record: Any, place: str = "", name: str = "sweep") -> SweepSpec:
    """Return the sweep that a mapping describes.

    Parameters
    ----------
    place : prefix of errors, as in ``sweep.yaml: ``.
    name : name of the sweep if the mapping has none.

    Raises
    ------
    InputError
        One line that names the field and the fix.
    """
    if not isinstance(record, dict):
        raise InputError(f"{place}holds no sweep; want trial, space, metric, max_trial_steps, … (docs/sweeps.md)")
    try:
        return SweepSpec.model_validate({"sweep": name, **record})
    except ValidationError as error:
        raise InputError(f"{place}{first_fault(error, lambda field: _FORMS.sub('markets', field))}") from None


def read_sweep(path: Path) -> SweepSpec:
    """Return the sweep that a YAML (or JSON) file describes; ``{date}`` is today.

    Raises
    ------
    InputError
        One line that names the file, the field and the fix; or the extra that sweeps need, where it is missing.
    """
    need_extra("sweeps", "a sweep")
    record = read_yaml(path)
    if isinstance(record, dict) and isinstance(record.get("earlier"), list):
        record = {**record, "earlier": [trial for each in record["earlier"] for trial in _earlier(each, path)]}
    return parse_sweep(record, f"{path}: ", sweep_name(path)).on(day(SystemClock().now_s()))


def _earlier(item: Any, path: Path) -> list[Any]:
    """Return the trials with a value of a result that a file names; anything else as it is."""
    if not isinstance(item, str):
        return [item]
    try:
        trials = json.loads(read_text(item))["trials"]
        return [
            {"params": trial["params"], "value": trial["value"], "finished": trial["state"] == "finished"}
            for trial in trials
            if trial["value"] is not None
        ]
    except InputError as error:
        raise InputError(f"{path}: earlier: {error}") from None
    except (ValueError, KeyError, TypeError):
        raise InputError(
            f"{path}: earlier: {item} is not a result of a sweep; `proteus sweep show SWEEP --json FILE` writes one"
        ) from None
