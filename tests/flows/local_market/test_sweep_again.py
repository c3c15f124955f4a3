"""`proteus sweep run` in a directory that holds an unfinished sweep of that name goes on with it."""

import re
from contextlib import closing
from pathlib import Path

import pytest

from proteus_spot.flows.local_market.sweep_run import asked_sweep
from proteus_spot.infra.state.records import JobKind, JobState
from proteus_spot.infra.state.store import Store

FILE = """
trial: mine:train
code: mine.py
space: {alpha: {choice: [1.0, 0.1]}}
metric: {name: loss}
max_trial_steps: 2
"""


@pytest.mark.parametrize(
    ("names", "end", "expected"),
    [
        ([], None, None),
        (["digits"], None, "digits-0"),
        (["digits"], JobState.FINISHED, None),
        (["digits", "digits"], None, "digits-1"),  # the newest
        (["other"], None, None),
    ],
)
def test_an_unfinished_sweep_of_that_name_is_found(
    tmp_path: Path, names: list[str], end: JobState | None, expected: str | None
) -> None:
    sweep = tmp_path / "digits.yaml"
    sweep.write_text(FILE)
    with closing(Store.open(f"sqlite:///{tmp_path / 'state.db'}")) as store:
        for number, name in enumerate(names):
            store.jobs.create_job(f"{name}-{number}", {"sweep": name}, number, JobKind.SWEEP)
            if end is not None:
                store.jobs.move_job(f"{name}-{number}", JobState.RUNNING, number + 1)
                store.jobs.move_job(f"{name}-{number}", end, number + 1, result={})
        store.jobs.create_job("a-job", {"sweep": "digits"}, 9)
    (tmp_path / "mine.py").write_text("")
    ids = [asked_sweep(sweep, None, place, None).job_id for place in (tmp_path, tmp_path / "new", None)]
    new = re.compile(r"digits-\d{12}")
    assert ids[0] == expected if expected else new.fullmatch(ids[0])
    assert all(new.fullmatch(each) for each in ids[1:]), "without --dir it makes a directory of its own"
