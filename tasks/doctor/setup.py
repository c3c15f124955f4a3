"""What is checked: settings, account and job; and how a check says what is wrong."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cached_property

from proteus_spot.bidding.market.catalog import Catalog
from proteus_spot.bidding.market.model import InstanceType, Market
from proteus_spot.infra.clock import Clock, open_clock
from proteus_spot.infra.ec2.account import Account
from proteus_spot.infra.ec2.ec2_spot_market import Ec2SpotMarket
from proteus_spot.infra.errors import ProteusError
from proteus_spot.infra.market_data.catalogs import read_catalog
from proteus_spot.infra.settings import Settings
from proteus_spot.studies.job_spec import JobSpec

#: Types that are checked where no job names one; the first that is sold.
_USUAL = ("c5.large", "m5.large", "c4.large")


class Wrong(ProteusError):
    """What a check has found wrong, in words, and its fix."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(what)
        self.fix = fix


@dataclass(frozen=True)
class Setup:
    """What is checked; each part is opened by the first check that needs it.

    Parameters
    ----------
    job : the job whose markets, machines and limits count; None: any job.
    """

    settings: Settings
    job: JobSpec | None = None

    @cached_property
    def market(self) -> Ec2SpotMarket:
        """EC2, or the simulated market of the settings."""
        return Ec2SpotMarket(self.settings)

    @cached_property
    def account(self) -> Account:
        """The account of the credentials."""
        return Account(self.market)

    @cached_property
    def catalog(self) -> Catalog:
        """The catalogue of the settings."""
        return read_catalog(self.settings.catalog)

    @cached_property
    def clock(self) -> Clock:
        """The clock of the market."""
        return open_clock(self.settings.clock)

    @property
    def day(self) -> date:
        """The day of the market."""
        return datetime.fromtimestamp(self.clock.now_s(), UTC).date()

    def type_of(self, market: Market) -> InstanceType | None:
        """Return the type of a market as the catalogue has it on the day; None if it has none."""
        return self.catalog.find(market, self.day)

    @cached_property
    def spot_markets(self) -> Sequence[Market]:
        """The markets that the job bids in; without a job, one of a usual type."""
        if self.job is None:
            return [self.reliable]
        return [Market.parse(text) for text in self.job.transient.markets] if self.job.transient.max_vcpus else []

    @cached_property
    def reliable(self) -> Market:
        """The market of the job's reliable tier; without a job, one of a usual type."""
        if self.job is not None:
            return Market(self.job.reliable.instance_type, self.job.reliable.zone)
        zones = sorted(self.settings.subnet_ids) or self.account.zones()
        sold = self.catalog.at(self.day, self.settings.region)
        kind = next((name for name in _USUAL if name in sold), None) or min(sold, default=None)
        if kind is None or not zones:
            raise Wrong(
                f"the catalogue has no type of {self.settings.region}", "run `proteus catalog fetch`, or fix the region"
            )
        return Market(kind, zones[0])
