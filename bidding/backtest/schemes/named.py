"""The schemes that are compared, by the name that users type: what decides, and what bears the losses."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from bidding.backtest.reference import Reference
from bidding.backtest.schemes import Rule
from bidding.backtest.setting import Setting, window_s
from bidding.model import HOUR_S

#: An elasticity that loses nothing, on three reliable machines that do no work: the defaults of `Setting`.
AGILEML: Mapping[str, int] = MappingProxyType({})

#: 17 % of the time goes to checkpoints, one in half an hour; what came after the last one is lost.
CHECKPOINTING: Mapping[str, int] = MappingProxyType(
    {
        "reliable_count": 0,
        "resize_overhead_s": 0,
        "eviction_overhead_s": 0,
        "efficiency_ppm": 830_000,
        "checkpoint_s": HOUR_S // 2,
        "restart_s": 300,
    }
)


@dataclass(frozen=True)
class Scheme:
    """A rule on an elasticity.

    Attributes
    ----------
    rule : what decides.
    settings : fields of `Setting` that differ from the defaults.
    parameters : the rule's own; None: the reference cluster's vCPUs.
    """

    rule: Rule
    settings: Mapping[str, int] = field(default_factory=dict, hash=False)
    parameters: tuple[float, ...] | None = None

    def setting(self, reference: Reference, hours: int, **changes: int) -> Setting:
        """Return the setting of a job that takes the reference cluster `hours`, with fields changed as named."""
        fields = {"work_vcpu_s": reference.vcpus * hours * HOUR_S, "window_s": window_s(hours)}
        if self.rule is Rule.NONE:  # the reference cluster itself, as one machine
            fields |= {"reliable_count": 1, "reliable_vcpus": reference.vcpus, "reliable_works": 1}
        setting = Setting(**{**fields, **self.settings, **changes})
        if "reliable_micros" in changes:
            return setting
        return replace(setting, reliable_micros=reference.micros(setting.reliable_vcpus))


SCHEMES: Mapping[str, Scheme] = MappingProxyType(
    {
        "on-demand": Scheme(Rule.NONE),
        "standard+checkpoint": Scheme(Rule.STANDARD, CHECKPOINTING),
        "standard+agileml": Scheme(Rule.STANDARD, AGILEML),
        "proteus": Scheme(Rule.PROTEUS, AGILEML),
    }
)
