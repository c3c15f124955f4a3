"""The schemes by the name that users type: a rule that decides, on an elasticity that bears the losses."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType

from proteus_spot.bidding.backtest.parameters import JobParameters, window_s
from proteus_spot.bidding.backtest.reference_cluster import Reference
from proteus_spot.bidding.backtest.schemes import SchemeId
from proteus_spot.bidding.economics.elasticity import AgileML, Checkpointing
from proteus_spot.bidding.evictions.table import DELTAS_MICROS
from proteus_spot.bidding.market.model import HOUR_S
from proteus_spot.bidding.policies.fixed_delta import PATTERN, delta_of, name_of

#: Live policies that decide as a rule does, except those with a bid delta in their name.
_POLICIES: Mapping[SchemeId, str] = MappingProxyType(
    {SchemeId.NONE: "on-demand", SchemeId.STANDARD: "standard", SchemeId.PROTEUS: "proteus", SchemeId.BEST: "best"}
)


@dataclass(frozen=True)
class Scheme:
    """A rule on an elasticity.

    Attributes
    ----------
    rule : number of the rule.
    settings : fields of `JobParameters` that differ from the defaults.
    parameters : the rule's own; None: the reference cluster's vCPUs.
    """

    rule: SchemeId
    settings: Mapping[str, int] = field(default_factory=dict, hash=False)
    parameters: tuple[float, ...] | None = None

    def setting(self, reference: Reference, hours: int, **changes: int) -> JobParameters:
        """Return the setting of a job that takes the reference cluster `hours`, with fields changed as named."""
        given = {"work_vcpu_s": reference.vcpus * hours * HOUR_S, "window_s": window_s(hours)}
        if self.rule is SchemeId.NONE:  # the reference cluster itself, as one machine
            given |= {"reliable_count": 1, "reliable_vcpus": reference.vcpus, "reliable_works": 1}
        setting = JobParameters(**{**given, **self.settings, **changes})
        if "reliable_micros" in changes:
            return setting
        return replace(setting, reliable_micros=reference.micros(setting.reliable_vcpus))

    @property
    def policy(self) -> str | None:
        """The name of the live policy that decides as the rule does; None if there is none."""
        if self.rule is SchemeId.ABOVE and self.parameters:
            return name_of(int(self.parameters[0]))
        return _POLICIES.get(self.rule)

    def values(self, reference: Reference) -> tuple[float, ...]:
        """Return the rule's parameters."""
        return (float(reference.vcpus),) if self.parameters is None else self.parameters

    def vcpus_at_once(self, reference: Reference) -> int | None:
        """Return how large the one allocation of a rule is that holds one, whatever the cap; None for other rules."""
        return int(self.values(reference)[0]) if self.rule is SchemeId.STANDARD else None


#: vCPUs of an allocation that takes all that the cap leaves.
_AT_ONCE = 1 << 20


def schemes(agileml: AgileML, checkpointing: Checkpointing) -> Mapping[str, Scheme]:
    """Return the schemes by name, on elasticities as given.

    Notes
    -----
    The standard strategy buys all at once and never stops to add machines, so it has no σ. BidBrain on checkpoints buys
    all that the cap leaves at once: E has no reliable machines to share, so that a step must pay, by σ and λ, for the
    stop of everything that works already; in steps it stays at its first one.
    """
    tiered, saving = _asked(agileml.settings()), checkpointing.settings()
    return MappingProxyType(
        {
            "on-demand": Scheme(SchemeId.NONE),
            "standard+checkpoint": Scheme(SchemeId.STANDARD, {**saving, "resize_overhead_s": 0}),
            "standard+agileml": Scheme(SchemeId.STANDARD, tiered),
            "bidbrain+checkpoint": Scheme(SchemeId.PROTEUS, {**saving, "allocation_vcpus": _AT_ONCE}),
            "proteus": Scheme(SchemeId.PROTEUS, tiered),
            "best": Scheme(SchemeId.BEST, {**tiered, "allocation_vcpus": _AT_ONCE, "patient": 1}),
            "just-above": Scheme(SchemeId.ABOVE, tiered, (float(DELTAS_MICROS[0]),)),
        }
    )


def _asked(settings: Mapping[str, int]) -> dict[str, int]:
    """Return what is not the default, so that the caller may still set the rest."""
    defaults = {each.name: each.default for each in fields(JobParameters)}
    return {name: value for name, value in settings.items() if value != defaults[name]}


SCHEMES: Mapping[str, Scheme] = schemes(AgileML(), Checkpointing())


#: Rule with knowledge of the coming hour, to compare with the clairvoyant bound. Only `scheme` returns it, since it is
#: not comparable with schemes that know the past only. Below ten free minutes it waits.
ORACLE = "oracle"
_FREE_AT_LEAST_S = 600.0


def scheme(name: str, among: Mapping[str, Scheme] = SCHEMES) -> Scheme:
    """Return the scheme of that name; ``fixed-delta:USD`` bids USD dollars above the cheapest market's price.

    Parameters
    ----------
    among : what `schemes` returns.

    Raises
    ------
    ValueError
        If no scheme has that name, or the dollars are no number, negative, or finer than a micro-dollar.
    """
    registered = among.get(name)
    if registered is not None:
        return registered
    if name == ORACLE:
        return replace(among["proteus"], rule=SchemeId.ORACLE, parameters=(_FREE_AT_LEAST_S,))
    delta_micros = delta_of(name)
    if delta_micros is None:
        raise ValueError(f"there is no scheme {name!r}; there are {', '.join(among)}, {PATTERN}")
    return replace(among["just-above"], parameters=(float(delta_micros),))
