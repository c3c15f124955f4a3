"""The description of a training job. The Prefect UI draws its form from this model."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

from pydantic import Field, ModelWrapValidatorHandler, field_validator, model_validator

from proteus_spot.bidding.billing import BillingModel
from proteus_spot.bidding.economics.job_model import JobModel
from proteus_spot.bidding.market.model import Market
from proteus_spot.bidding.market.money import Micros, to_micros
from proteus_spot.bidding.policies import AT_ONCE, POLICIES, policy
from proteus_spot.bidding.policies.fixed_delta import FIXED_DELTA, PATTERN
from proteus_spot.infra.datasets.formats.reading import Empty, Reading
from proteus_spot.psengine.apps.registry import BUILT_IN
from proteus_spot.psengine.config import Until
from proteus_spot.studies.form_fields import (
    DATE,
    MOST_COUNT,
    BillingName,
    BudgetUsd,
    DeadlineText,
    FlatPrice,
    FormModel,
    JobId,
    Location,
    MarketName,
    OnDemandUsd,
    QueueName,
    RepriceName,
    check_market,
    dated,
    spot_billing,
)
from proteus_spot.studies.times import parse_deadline

#: Most machines of a reliable tier.
MOST_RELIABLE = 64
#: vCPUs of more machines than any region has.
_MOST_VCPUS = 10_000_000
_DAY_S = 86_400


def _choice_of_policies(schema: dict[str, Any]) -> None:
    """Have the form offer the policies by name, or a bid delta of one's own; the server refuses any other text."""
    schema["anyOf"] = [
        {"type": "string", "title": "By name", "enum": sorted(POLICIES)},
        {"type": "string", "title": "Fixed bid delta, in dollars", "pattern": f"^{FIXED_DELTA}:.+$"},
        {"type": "null"},
    ]


class Training(FormModel):
    """The application, its data, and when it is done."""

    app: str = Field(
        "mlr", title="Application", description=f"One of {', '.join(sorted(BUILT_IN))}, or module:Class of your code."
    )
    code: Location = Field(
        "",
        title="Code of the application",
        description="Path or URL of the .py file or wheel that holds module:Class. Empty: it is on every machine.",
    )
    app_params: dict[str, Any] = Field(default_factory=dict, title="Parameters of the application")
    data: Location = Field(
        "digits",
        title="Data",
        description="A built-in set, or path or URL of a .csv, .tsv, .svm (svmlight), IDX or .npz file, packed or not. "
        "{date} as in the job.",
    )
    clocks: int | None = Field(None, ge=1, le=MOST_COUNT, title="Stop after this many clocks")
    passes: int | None = Field(
        None,
        ge=1,
        le=MOST_COUNT,
        title="Stop after this many passes over the data",
        description="As the application counts them.",
    )
    hours: float | None = Field(None, gt=0, title="Stop after this many market hours")
    until: str = Field(
        "",
        title="Stop when it has converged",
        description="loss=0.1, no-improvement=5 (clocks), accuracy>=0.95 or rmse<=0.8 (of what is held out), before "
        "clocks and hours. Empty: never.",
    )
    checkpoint_minutes: float = Field(10.0, gt=0, title="Minutes between checkpoints", description="Market minutes.")
    evaluate_every: int | None = Field(
        None,
        ge=1,
        le=MOST_COUNT,
        title="Clocks between evaluations",
        description="On what is held out. Empty: only at the end.",
    )
    seed: int = Field(0, ge=0, le=MOST_COUNT, title="Seed", description="Of the order of the data and of the model.")
    max_partitions_per_node: int | None = Field(
        None,
        ge=1,
        le=4096,
        title="Most partitions of a node",
        description="The others wait for more nodes; bgd does without them until then. Empty: any number.",
    )
    label: str = Field(
        "", title="Label", description="Column of the labels of a CSV. Empty: by its name, else the last."
    )
    empty: Empty = Field(
        "refuse",
        title="Cells without a value",
        description="drop leaves their rows out, mean fills in the mean of the column.",
    )
    partitions: int = Field(16, ge=1, le=4096, title="Partitions", description="Slices of the data.")
    shards: int = Field(
        4, ge=1, le=1024, title="Shards", description="Slices of the model: half of the most machines ever held."
    )
    staleness: int = Field(0, ge=0, le=100, title="Staleness", description="0 is bulk synchronous.")
    stage: Literal[1, 2, 3] | None = Field(
        None,
        title="Stage",
        description="Nodes that serve. 1: the reliable ones; 2 and 3: half of the transient ones; 3: only transient "
        "nodes work. Empty: by the numbers of nodes.",
    )
    stage_2_above: float = Field(1.0, ge=0, title="Transient / reliable nodes above which stage 2 holds")
    stage_3_above: float = Field(15.0, ge=0, title="Transient / reliable nodes above which stage 3 holds")
    servers: int | None = Field(
        None,
        ge=1,
        le=1024,
        title="Servers",
        description="Transient nodes that serve the model in stages 2 and 3. Empty: half of them.",
    )
    scale_in: bool | None = Field(
        None,
        title="Scale in as the memory falls",
        description="Fewer servers, and machines offered for release. Empty: where the application says so (lda).",
    )
    nan: Literal["fail", "allow"] = Field(
        "fail",
        title="Numbers that are not finite",
        description="In the model, an update or a loss: the job fails with the table and the clock, or goes on.",
    )

    @field_validator("until")
    @classmethod
    def _can_be_reached(cls, until: str) -> str:
        Until.parse(until)
        return until

    @property
    def standardizes(self) -> bool | None:
        """Whether the application wants to know the scales of its inputs; None: where they are dense."""
        if self.app == "mlr" and not {"standardize", "features"} & self.app_params.keys():
            return None
        return self.app_params.get("standardize") is True

    @property
    def reading(self) -> Reading:
        """How a table of examples is to be read."""
        return Reading(self.label, self.empty)

    @model_validator(mode="after")
    def _ends(self) -> "Training":
        if self.clocks is None and self.passes is None and self.hours is None:
            raise ValueError("a job needs an end: give clocks, passes, hours, or several of them")
        if self.stage_3_above < self.stage_2_above:
            raise ValueError("stage_3_above is below stage_2_above: want the second ratio no less than the first")
        return self


class ReliableTier(FormModel):
    """The reliable tier: machines bought on demand and held while the job runs."""

    count: int = Field(
        1, ge=1, le=MOST_RELIABLE, title="Machines", description="Bought on demand, and held while the job runs."
    )
    instance_type: str = Field("", title="Instance type", description="Empty: that of the first market.")
    zone: str = Field("", title="Zone", description="Empty: that of the first market, as bytes between zones cost.")

    @model_validator(mode="after")
    def _is_bought_somewhere(self) -> "ReliableTier":
        if self.instance_type and self.zone:
            check_market(f"{self.instance_type}/{self.zone}")
        return self


class TransientTier(FormModel):
    """The transient tier: machines that the market may evict; where to bid, and how much to hold."""

    markets: list[MarketName] = Field(min_length=1, title="Markets", description="Where to bid: TYPE/ZONE each.")
    max_vcpus: int = Field(
        8, ge=0, le=_MOST_VCPUS, title="Most vCPUs held at once", description="GPUs, where unit is gpu."
    )
    unit: Literal["vcpu", "gpu"] = Field(
        "vcpu",
        title="Unit of sizes and work",
        description="gpu: max_vcpus and allocation_vcpus count GPUs, and a machine works on a task for each of them.",
    )
    policy: str | None = Field(
        None,
        title="Bidding policy",
        description=f"{', '.join(sorted(POLICIES))}, or {PATTERN}: so many dollars above the price. "
        "Empty: deadline by today's rules, best by those of 2016.",
        json_schema_extra=_choice_of_policies,
    )
    rules: Literal["today", "2016"] | None = Field(
        None,
        title="Rules of the market",
        description="today: no bid, as many machines as there are, taken for their capacity. 2016: bids decide. "
        "Empty: today's on AWS, else those of 2016.",
    )
    billing: BillingName = "per-second-first-hour-free"
    reprice: RepriceName = None
    flat_price: FlatPrice = None
    evictions: Location = Field(
        "",
        title="Eviction model",
        description="Path or URL of a model made by `proteus evictions fit`. "
        "Empty: by the rules of 2016 the paper's table, of the price history; by today's what is known of the markets.",
    )
    allocation_vcpus: int | None = Field(
        None,
        ge=1,
        le=_MOST_VCPUS,
        title="vCPUs an allocation",
        description="Empty: as the policy likes it; all for best, deadline and standard, else 4.",
    )
    ceiling_on_demand: bool = Field(True, title="Never bid in a market that stands above its on-demand price")
    value_of_time_usd_per_h: float = Field(
        0.0,
        ge=0,
        le=1e6,
        title="Value of an hour",
        description="Dollars that an hour less is worth to the policy deadline.",
    )
    exclude_markets: list[str] = Field(
        default_factory=list,
        title="Excluded markets",
        description="Where nothing is bought, spot or on demand: TYPE/ZONE, TYPE or ZONE each.",
    )
    on_demand_usd: OnDemandUsd = Field(
        None,
        title="Most for machines on demand",
        description="Dollars that machines on demand may cost which are bought to keep the deadline; the reliable tier "
        "is not among them. Empty: no limit but the budget.",
    )
    scaling_efficiency: float = Field(1.0, gt=0, le=1, title="φ: scaling efficiency")
    resize_overhead_s: float = Field(20.0, ge=0, le=_DAY_S, title="σ: seconds lost to a change of the footprint")
    eviction_overhead_s: float = Field(60.0, ge=0, le=_DAY_S, title="λ: seconds lost to an eviction")

    @field_validator("policy")
    @classmethod
    def _is_a_policy(cls, name: str | None) -> str | None:
        if name is not None:
            policy(name)  # raises an error that lists the policies
        return name

    @model_validator(mode="after")
    def _excludes_some_markets(self) -> "TransientTier":
        markets = [Market.parse(name) for name in self.markets]
        for name in self.exclude_markets:
            if not any(name in (str(each), each.instance_type, each.zone) for each in markets):
                raise ValueError(f"exclude_markets: {name!r} is no market of the job, nor a type or zone of one")
        out = JobModel(exclude_markets=tuple(self.exclude_markets))
        if all(map(out.excludes, markets)):
            raise ValueError("exclude_markets: leaves no market to buy in")
        return self

    @property
    def on_demand_micros(self) -> Micros | None:
        """The limit for machines on demand in micro-dollars; None: there is none."""
        return None if self.on_demand_usd is None else to_micros(self.on_demand_usd)

    @property
    def billing_model(self) -> BillingModel:
        """How spot machines are charged."""
        return spot_billing(self.billing, self.flat_price, self.reprice)

    @property
    def vcpus_at_once(self) -> int:
        """The vCPUs of one allocation: as asked for, or as the policy likes it."""
        if self.allocation_vcpus is not None:
            return self.allocation_vcpus
        return max(self.max_vcpus, 1) if self.policy is None or self.policy in AT_ONCE else 4


class JobSpec(FormModel):
    """A training job. The same `job_id` never runs twice: a second run attaches to it."""

    job_id: JobId = Field(
        title="Job",
        description="Lower-case letters, digits and dashes. {date} is the day (UTC) for which a schedule has the run.",
    )
    transient: TransientTier = Field(title="Transient tier")
    training: Training = Field(title="Training")
    reliable: ReliableTier = Field(default_factory=ReliableTier, title="Reliable tier")
    budget_usd: BudgetUsd = Field(
        None,
        title="Budget",
        description="Dollars that the job spends at most; when they are reached it saves its model and stops. "
        "Empty: no limit.",
    )
    deadline: DeadlineText = Field(
        None,
        title="Deadline",
        description="90m or 12h from the submission, a wait in a queue included, or a time with its zone, by the "
        "market's clock. When the time gets short, on-demand machines finish the job. Needs clocks. Empty: none.",
    )
    queue: QueueName = Field(
        None,
        title="Queue",
        description="Jobs of one queue run one after the other and pass their machines on (docs/queues.md). "
        "Empty: the job begins at once.",
    )

    @model_validator(mode="wrap")
    @classmethod
    def _reliable_tier_is_near(cls, record: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        """Fill in the reliable tier's type and zone: those of the first market, where they are not given.

        What is filled in is not among the fields that were set.
        """
        if not isinstance(record, Mapping):
            return validate(record)
        tier, reliable = record.get("transient"), record.get("reliable", {})
        markets = tier.get("markets") if isinstance(tier, Mapping) else getattr(tier, "markets", None)
        if not (isinstance(reliable, Mapping) and isinstance(markets, Sequence) and markets):
            return validate(record)
        try:
            first = Market.parse(check_market(str(markets[0])))
        except ValueError:
            return validate(record)  # the markets' own error says so
        given = {name: value for name, value in reliable.items() if value not in ("", None)}
        near = {"instance_type": first.instance_type, "zone": first.zone}
        spec = validate({**record, "reliable": near | given})
        spec.reliable.model_fields_set.difference_update(near.keys() - given.keys())
        if "reliable" not in record:
            spec.model_fields_set.discard("reliable")
        return spec

    @model_validator(mode="after")
    def _deadline_counts_clocks(self) -> "JobSpec":
        if self.deadline is not None and self.training.clocks is None:
            raise ValueError("deadline: a job that ends by it counts its work in clocks; give training.clocks")
        return self

    def on(self, day: str) -> "JobSpec":
        """Return the job with `day`, as in 2026-01-31, where its id and its data say ``{date}``."""
        changes: dict[str, Any] = {"job_id": dated(self.job_id, day)}
        if DATE in self.training.data:
            changes["training"] = self.training.model_copy(update={"data": dated(self.training.data, day)})
        return self.model_copy(update=changes)

    @property
    def billing_model(self) -> BillingModel:
        """How spot machines are charged."""
        return self.transient.billing_model

    @property
    def budget_micros(self) -> Micros | None:
        """The budget in micro-dollars; None: no limit."""
        return None if self.budget_usd is None else to_micros(self.budget_usd)

    def deadline_s(self, submitted_s: float) -> int | None:
        """Return the deadline of the job if submitted at `submitted_s`, seconds since the epoch; None: no deadline."""
        return None if self.deadline is None else parse_deadline(self.deadline).time_s(submitted_s)
