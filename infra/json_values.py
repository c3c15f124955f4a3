"""Values that JSON can represent."""

import math
from typing import Any


def finite(value: Any) -> Any:
    """Return `value` with None for every number that is not finite, at any depth: JSON cannot represent those."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [finite(entry) for entry in value]
    return value
