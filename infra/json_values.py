"""Values as JSON can write them. Apart from `files`, which needs pyarrow: nodes do without it."""

import math
from typing import Any


def finite(value: Any) -> Any:
    """Return `value` with None for every number that is not finite, at any depth: JSON has no word for those."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    return value
