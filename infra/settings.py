"""All settings, from ``PROTEUS_…`` environment variables, with descriptions and defaults for one machine."""

from functools import lru_cache
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from platformdirs import user_data_dir
from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from proteus_spot.infra.errors import InputError
from proteus_spot.infra.urls import at_home, file_url, sqlite_url
from proteus_spot.infra.validation import first_fault

#: A century: no duration of use is longer.
_MOST_S = 36_525 * 86_400
#: A lease must outlast this many ticks.
_LEASE_TICKS = 5


def _home(name: str) -> Path:
    return Path(user_data_dir("proteus")) / name


class Settings(BaseSettings):
    """The settings of a process. Durations that end in `_s` are market seconds."""

    model_config = SettingsConfigDict(env_prefix="PROTEUS_", extra="ignore", frozen=True, allow_inf_nan=False)

    database_url: str = Field(
        default_factory=lambda: sqlite_url(_home("state.db")),
        description="SQLAlchemy URL of the state database (SQLite file, or PostgreSQL where machines share it).",
    )
    blob_url: str = Field(
        default_factory=lambda: file_url(_home("blobs")),
        description="fsspec URL under which data, models and logs are kept (file://, s3://).",
    )
    predictors_url: str | None = Field(
        None,
        description="fsspec URL of fitted eviction predictors; unset: `predictors` under the blob URL.",
    )
    clock: str = Field("system", description="`system`, or the path of a scaled clock's file.")
    owner: str = Field(
        "",
        description="Owner of a new state database, as a tag of its machines; empty: a random one.",
    )
    region: str = Field("us-east-1", description="EC2 region.")
    ec2_endpoint_url: str | None = Field(None, description="EC2 API to talk to; unset: AWS itself.")
    ec2_key_id: SecretStr | None = Field(
        None, description="Key of a simulated market that was started here; unset: the credentials that boto3 finds."
    )
    image_id: str = Field(
        "ami-00000000", description="Machine image of a node, with this project in it; the default is none: set it."
    )
    root_volume_gb: int | None = Field(
        None, ge=1, le=16384, description="Size of a node's encrypted root volume in GiB; unset: that of the image."
    )
    subnet_ids: dict[str, str] = Field(default_factory=dict, description="Subnet by zone; empty: the default one.")
    security_group_ids: list[str] = Field(default_factory=list, description="Security groups of a node.")
    instance_profile: str | None = Field(None, description="Instance profile that lets a node read its bucket.")
    node_host: str | None = Field(None, description="Address that nodes listen on; unset: that of their connections.")
    node_python: str = Field("python3", description="Path of the interpreter on a node.")
    tls: Literal["auto", "on"] = Field(
        "auto",
        description="TLS between the processes of a job: `auto`, unless nodes listen on the loopback "
        "(PROTEUS_NODE_HOST); `on`, always.",
    )
    catalog: Path | None = Field(None, description="CSV of instance types; unset: the shipped one.")
    tick_s: int = Field(
        120, gt=0, le=_MOST_S, description="Seconds between decisions; the schedule is in prefect.yaml."
    )
    notice_s: int = Field(120, gt=0, le=_MOST_S, description="Warning that the market gives before it takes a machine.")
    poll_s: float = Field(5.0, gt=0, le=_MOST_S, description="Seconds between two looks for a notice, on a node.")
    lease_minutes: float = Field(
        60.0,
        ge=10,
        le=_MOST_S / 60,
        description="Minutes that a tick extends the lease of a machine by, at least five ticks; without ticks it ends "
        "itself then.",
    )
    alarm_webhook: SecretStr | None = Field(
        None, description="URL that a machine posts to when it ends because no tick has extended its lease."
    )
    renewal_lead_s: int = Field(
        240, gt=0, le=_MOST_S, description="A renewal is decided this long before an hour ends."
    )
    history_days: float = Field(
        14.0, gt=0, le=_MOST_S / 86_400, description="Price history that the eviction model is fitted on."
    )
    prices_max_age_s: int = Field(
        21 * 86_400,
        gt=0,
        le=_MOST_S,
        description="Nothing is bought or fitted on prices that were not reported for this long; nothing is bought "
        "either when a feed that had reported some price every half-hour has been silent for three hours.",
    )
    cpu_kernels: Literal["native", "avx2"] = Field(
        "native",
        description="Kernels of NumPy, BLAS and numba on a node: `native`, the fastest of each processor, or `avx2`, "
        "the same on all, so that a model has the same bits on machines of several types.",
    )
    start_minutes: float = Field(
        15.0,
        gt=0,
        le=_MOST_S / 60,
        description="Real minutes for a controller to answer on its machine; then it is bought another one.",
    )
    join_minutes: float = Field(
        15.0,
        gt=0,
        le=_MOST_S / 60,
        description="Real minutes for a machine to join the controller; then it is let go, and its market cooled.",
    )
    progress_minutes: float = Field(
        60.0,
        gt=0,
        le=_MOST_S / 60,
        description="Real minutes without a new clock, while machines work, after which a job is stopped; a trial "
        "without a step fails.",
    )
    stop_minutes: float = Field(
        5.0,
        gt=0,
        le=_MOST_S / 60,
        description="Real minutes to wait for a silent controller of a stopping job; then its checkpoint counts.",
    )
    events_url: str | None = Field(
        None,
        description="Prefect API to which the reliable tier reports notices, as in http://HOST:4200/api; unset: the "
        "run of `train` reports them, else the next tick finds them. It is of no use where the server has a login.",
    )

    machine_events_url: str | None = Field(
        None,
        description="URL of an SQS queue with EC2's events of machines; unset: none.",
    )

    @field_validator("database_url", "blob_url", "predictors_url", "clock", "catalog", mode="before")
    @classmethod
    def _is_at_home(cls, place: object) -> object:
        return at_home(place) if isinstance(place, str) else place

    @field_validator("alarm_webhook")
    @classmethod
    def _is_http(cls, webhook: SecretStr | None) -> SecretStr | None:
        if webhook is not None and not webhook.get_secret_value().startswith(("https://", "http://")):
            raise ValueError("is not a URL that begins with https:// or http://")
        return webhook

    cross_zone_usd_per_gb: float = Field(
        0.02,
        ge=0,
        le=1000,
        description="Price of a gigabyte between zones: EC2 charges sender and receiver $0.01.",
    )

    @property
    def is_aws(self) -> bool:
        """Whether machines are bought at AWS itself, not in a simulated market."""
        if self.ec2_endpoint_url is None:
            return True
        return (urlsplit(self.ec2_endpoint_url).hostname or "").endswith((".amazonaws.com", ".amazonaws.com.cn"))

    def fastest_scale(self, flow_latency_s: float) -> float:
        """Return the largest scale at which flows that take `flow_latency_s` real seconds keep their periods."""
        return min(self.tick_s, self.renewal_lead_s) / flow_latency_s

    def check_cadence(self, scale: float, flow_latency_s: float) -> None:
        """Refuse periods too short for flows of `flow_latency_s` real seconds at `scale` market seconds per second.

        Raises
        ------
        InputError
            Naming the setting, and the largest possible scale.
        """
        for name, period_s in (("tick_s", self.tick_s), ("renewal_lead_s", self.renewal_lead_s)):
            if period_s / scale < flow_latency_s:
                best = period_s / flow_latency_s
                raise InputError(
                    f"PROTEUS_{name.upper()}: {period_s} s pass in {period_s / scale:.2f} s at scale {scale:g}, and a "
                    f"flow takes {flow_latency_s:.2f} s here; use a scale of at most {best:.0f}"
                )
        if self.poll_s * 2 > self.notice_s:
            raise InputError(
                f"PROTEUS_POLL_S: looking every {self.poll_s:g} s is too rare for a notice of {self.notice_s} s; "
                f"use at most {self.notice_s / 2:g}"
            )
        if self.lease_minutes * 60 < _LEASE_TICKS * self.tick_s:
            raise InputError(
                f"PROTEUS_LEASE_MINUTES: {self.lease_minutes:g} is less than {_LEASE_TICKS} ticks of {self.tick_s} s, "
                f"and machines would end when ticks are late; use at least {_LEASE_TICKS * self.tick_s / 60:g}"
            )
        if self.renewal_lead_s < self.tick_s:
            raise InputError(
                f"PROTEUS_RENEWAL_LEAD_S: {self.renewal_lead_s} s before the hour's end is less than a tick "
                f"({self.tick_s} s), so a renewal could be missed; use at least {self.tick_s}"
            )


@lru_cache(maxsize=1)
def load_settings() -> Settings:
    """Return the settings of this process, read once from the environment.

    Raises
    ------
    InputError
        Naming the variable and what is wrong with it.
    """
    try:
        return Settings()
    except SettingsError as error:
        # "error parsing value for field "NAME" from source …": a list or mapping is expected and the text is not JSON
        name = str(error).partition('"')[2].partition('"')[0].upper()
        raise InputError(f'PROTEUS_{name}: is not JSON; write it as in ["a", "b"] or {{"a": "b"}}') from None
    except ValidationError as error:
        raise InputError(first_fault(error, lambda place: "PROTEUS_" + place.replace(".", "_").upper())) from None
