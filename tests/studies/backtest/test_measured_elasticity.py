"""What a real run measured takes the place of the paper's λ and σ in a backtest."""

import json
from pathlib import Path
from typing import Any

import pytest

from proteus_spot.infra.errors import InputError
from proteus_spot.studies.backtest.backtest_spec import backtest_spec, read_elasticity

#: A kill at clock 5 that cost 9 s, a join at clock 15 that cost 4 s; see the tests of `AgileML.from_measured`.
SECONDS = [1.0] * 5 + [8.0, 5.0, 2.0] + [2.0] * 7 + [1.0, 3.0, 3.0] + [1.0] * 7
FIGURES: dict[str, Any] = {
    "job": "mine",
    "seconds_by_clock": SECONDS,
    "events": [{"action": "kill", "clock": 5}, {"action": "join", "clock": 15}],
}


def test_the_figures_of_a_training_job_are_an_elasticity(tmp_path: Path) -> None:
    (tmp_path / "train.json").write_text(json.dumps(FIGURES))
    record = read_elasticity(str(tmp_path / "train.json"))
    assert (record["model"], record["eviction_overhead_s"], record["resize_overhead_s"]) == ("agileml", 9.0, 4.0)
    settings = backtest_spec(elasticity=[record]).scheme("proteus").settings
    assert settings == {"eviction_overhead_s": 9, "resize_overhead_s": 4}, (
        "what was not measured may still be asked for"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '{"seconds_by_clock": [1.0]}',
            r"not the figures of a training job: .*; write numbers of an elasticity, as in",
        ),
        ("5", "is not a JSON object; write numbers of an elasticity, as in .*, or what proteus train --json writes"),
        ('"seconds_by_clock"', "is not a JSON object"),
        ("{", "write numbers of an elasticity"),
    ],
)
def test_what_is_neither_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "train.json").write_text(text)
    with pytest.raises(InputError, match=said):
        read_elasticity(str(tmp_path / "train.json"))
