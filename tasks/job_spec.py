"""What a user asks for: a training job. The Prefect UI draws its form from this model."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from bidding.billing import BillingModel
from bidding.policies import AT_ONCE
from infra.errors import InputError
from infra.market_data.request_files import Place
from tasks.billing_options import billing_model

#: Order ids are EC2 client tokens (at most 64 characters), and they begin with the job's id.
JOB_ID_PATTERN = r"^[a-z0-9][a-z0-9-]{0,39}$"


class Training(BaseModel):
    """The application, its data, and when it is done."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    app: str = Field("mlr", title="Application", description="A built-in one, or module:Class.")
    code: str = Field(
        "",
        title="Code of the application",
        description="Path or URL of the .py file or wheel that holds module:Class. Empty: it is on every machine.",
    )
    app_params: dict[str, Any] = Field(default_factory=dict, title="Parameters of the application")
    data: str = Field(
        "digits",
        title="Data",
        description="A built-in set, or path or URL of a .csv, .tsv, .svm (svmlight) or .npz file, packed or not.",
    )
    partitions: int = Field(16, ge=1, le=4096, title="Input partitions")
    shards: int = Field(4, ge=1, le=1024, title="Shards", description="Half of the most machines ever held.")
    staleness: int = Field(0, ge=0, le=100, title="Staleness", description="0 is bulk synchronous.")
    stage: Literal[1, 2, 3] | None = Field(
        None, title="Stage", description="Who serves the model (docs/engine.md). Empty: by the ratio of the tiers."
    )
    stage_2_above: float = Field(1.0, ge=0, title="Transient / reliable nodes above which stage 2 holds")
    stage_3_above: float = Field(15.0, ge=0, title="Transient / reliable nodes above which stage 3 holds")
    clocks: int | None = Field(None, ge=1, title="Stop after this many clocks")
    hours: float | None = Field(None, gt=0, title="Stop after this many market hours")
    checkpoint_minutes: float = Field(10.0, gt=0, title="Minutes between checkpoints", description="Market minutes.")
    evaluate_every: int | None = Field(
        None, ge=1, title="Clocks between evaluations", description="On what is held out. Empty: only at the end."
    )
    seed: int = Field(0, ge=0, title="Seed")

    @model_validator(mode="after")
    def _ends(self) -> "Training":
        if self.clocks is None and self.hours is None:
            raise ValueError("a job needs an end: give clocks, hours, or both")
        if self.stage_3_above < self.stage_2_above:
            raise ValueError("stage_3_above is below stage_2_above: want the second ratio no less than the first")
        return self


class ReliableTier(BaseModel):
    """The machines that must last: bought on demand, never let go while the job runs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    count: int = Field(1, ge=1, le=64, title="Machines")
    instance_type: str = Field("c4.large", title="Instance type")
    zone: str = Field("us-east-1a", title="Zone")


class TransientTier(BaseModel):
    """The machines that may be taken: where to bid, and how much to hold."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    markets: list[str] = Field(min_length=1, title="Markets", description="Where to bid: TYPE/ZONE each.")
    allocation_vcpus: int | None = Field(
        None,
        ge=1,
        title="vCPUs an allocation",
        description="Empty: as the policy likes it; all for best and standard, else 4.",
    )
    max_vcpus: int = Field(8, ge=0, title="Most vCPUs held at once")
    policy: str = Field(
        "best",
        title="Bidding policy",
        description="best, fixed-delta:USD, just-above, on-demand, proteus or standard.",
    )
    evictions: str = Field(
        "",
        title="Eviction model",
        description="Path or URL of a model made by `proteus evictions fit`. Empty: the paper's table, of the price history.",
    )
    billing: Literal["hourly-refund", "per-second-first-hour-free", "flat"] = Field(
        "hourly-refund", title="Billing model"
    )
    reprice: Literal["hour", "change"] | None = Field(
        None, title="When a new price counts", description="Of per-second-first-hour-free. Empty: at the next hour."
    )
    flat_price: str | None = Field(
        None,
        coerce_numbers_to_str=True,
        validate_default=True,
        title="Flat price",
        description="Of flat: dollars per instance-hour.",
    )
    ceiling_on_demand: bool = Field(True, title="Never bid in a market that stands above its on-demand price")
    scaling_efficiency: float = Field(1.0, gt=0, le=1, title="φ: scaling efficiency")
    resize_overhead_s: float = Field(20.0, ge=0, title="σ: seconds lost to a change of the footprint")
    eviction_overhead_s: float = Field(60.0, ge=0, title="λ: seconds lost to an eviction")

    @field_validator("flat_price")
    @classmethod
    def _is_charged_somehow(cls, flat_price: str | None, info: ValidationInfo) -> str | None:
        if {"billing", "reprice"} <= info.data.keys():  # else those are wrong themselves
            try:
                billing_model(info.data["billing"], flat_price=flat_price, reprice=info.data["reprice"], place=Place())
            except InputError as error:
                raise ValueError(str(error)) from None
        return flat_price

    @property
    def billing_model(self) -> BillingModel:
        """How spot machines are charged."""
        return billing_model(self.billing, flat_price=self.flat_price, reprice=self.reprice, place=Place())

    @property
    def vcpus_at_once(self) -> int:
        """The vCPUs of one allocation: as asked for, or as the policy likes it."""
        if self.allocation_vcpus is not None:
            return self.allocation_vcpus
        return max(self.max_vcpus, 1) if self.policy in AT_ONCE else 4


class JobSpec(BaseModel):
    """A training job. The same `job_id` never runs twice: a second run attaches to it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    job_id: str = Field(pattern=JOB_ID_PATTERN, title="Job", description="Lower-case letters, digits and dashes.")
    training: Training = Field(title="Training")
    reliable: ReliableTier = Field(default_factory=ReliableTier, title="Reliable tier")
    transient: TransientTier = Field(title="Transient tier")
