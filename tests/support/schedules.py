"""The schedules that prefect.yaml holds for users to copy, in comments."""

import re
from pathlib import Path
from typing import Any

import yaml

PREFECT_YAML = Path(__file__).parents[2] / "prefect.yaml"
_COMMENTED = re.compile(r"^  # (?=schedules:|- |  )", re.MULTILINE)


def examples() -> dict[str, list[dict[str, Any]]]:
    """Return the schedules by the name of their deployment, as they are when the `#` of each of their lines is gone."""
    text = PREFECT_YAML.read_text()
    live, every = (yaml.safe_load(each)["deployments"] for each in (text, re.sub(_COMMENTED, "  ", text)))
    return {
        with_them["name"]: with_them["schedules"]
        for without, with_them in zip(live, every, strict=True)
        if without.get("schedules") != with_them.get("schedules")
    }
