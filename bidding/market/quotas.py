"""EC2's vCPU quotas: one per class of instance families, for spot and for on-demand machines each.

*Source*: EC2 user guide, "On-Demand Instance quotas" and "Spot Instance quotas"; the codes are those of Service Quotas.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Quota:
    """A quota of Service Quotas' service ``ec2``, in vCPUs."""

    code: str
    name: str
    families: tuple[str, ...]
    spot: bool


_STANDARD = ("a", "c", "d", "h", "i", "m", "r", "t", "z")

#: A family belongs to the first class that names it.
QUOTAS = (
    Quota("L-3819A6DF", "All G and VT Spot Instance Requests", ("g", "vt"), spot=True),
    Quota("L-DB2E81BA", "Running On-Demand G and VT instances", ("g", "vt"), spot=False),
    Quota("L-7212CCBC", "All P4, P3 and P2 Spot Instance Requests", ("p",), spot=True),
    Quota("L-417A185B", "Running On-Demand P instances", ("p",), spot=False),
    Quota("L-B5D1601B", "All Inf Spot Instance Requests", ("inf",), spot=True),
    Quota("L-1945791B", "Running On-Demand Inf instances", ("inf",), spot=False),
    Quota("L-88CF9481", "All F Spot Instance Requests", ("f",), spot=True),
    Quota("L-74FC7D96", "Running On-Demand F instances", ("f",), spot=False),
    Quota("L-E3A00192", "All X Spot Instance Requests", ("x",), spot=True),
    Quota("L-7295265B", "Running On-Demand X instances", ("x",), spot=False),
    Quota(
        "L-34B43A08", "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests", _STANDARD, spot=True
    ),
    Quota(
        "L-1216C47A", "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances", _STANDARD, spot=False
    ),
)  # fmt: skip


def left_of(left: Mapping[str, int], instance_type: str, spot: bool) -> int | None:
    """Return the vCPUs that the account may still hold of a type; None where no quota is known.

    Parameters
    ----------
    left : vCPUs that are left by quota code.
    """
    quota = quota_of(instance_type, spot)
    return None if quota is None else left.get(quota.code)


def take_quota(left: dict[str, int], instance_type: str, vcpus: int, spot: bool) -> None:
    """Take the vCPUs of a purchase from what is left by quota code."""
    quota = quota_of(instance_type, spot)
    if quota is not None and quota.code in left:
        left[quota.code] -= vcpus


def quota_of(instance_type: str, spot: bool) -> Quota | None:
    """Return the quota that machines of a type count against; None for a family that is in no class here."""
    letters = re.match(r"[a-z]+", instance_type)
    family = letters[0] if letters else ""
    # The letters before the generation name the family: `inf`, `vt`; else its first one does, as in `im4gn`.
    for name in (family, family[:1]):
        for quota in QUOTAS:
            if quota.spot is spot and name in quota.families:
                return quota
    return None
