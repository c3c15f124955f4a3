"""Values of a user's classes as text: the state of a driver in a checkpoint, and copies that nothing changes.

Only the controller of the job that wrote the text reads it: what can change a checkpoint can change the code, too.
"""

from __future__ import annotations

import base64
import pickle
from typing import Any


def to_text(value: Any) -> str:
    """Return a picklable value as text; raises what pickling it raises."""
    return base64.b64encode(pickle.dumps(value)).decode("ascii")


def from_text(text: str) -> Any:
    """Return the value of which `to_text` returned this; raises if its classes are gone."""
    return pickle.loads(base64.b64decode(text))
