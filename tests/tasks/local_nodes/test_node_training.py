"""The figures of a local training, and hints about options that leave nodes without something to do."""

from pathlib import Path

import pytest

from proteus_spot.infra.storage.blobs import Blobs
from proteus_spot.studies.job_spec import Training
from proteus_spot.tasks.local_nodes.event_script import ScriptedEvent
from proteus_spot.tasks.local_nodes.node_training import LocalJob, figures_of, hints


def job(transient: int, **training: object) -> LocalJob:
    tiers = {"r1": "reliable"} | {f"t{n + 1}": "transient" for n in range(transient)}
    return LocalJob("job", Training.model_validate({"app": "mlr", "data": "digits", "clocks": 5, **training}), tiers, 1)


@pytest.mark.parametrize(("transient", "training"), [(3, {}), (8, {}), (60, {"partitions": 61, "shards": 30})])
def test_enough_is_not_spoken_of(transient: int, training: dict[str, object]) -> None:
    assert hints(job(transient, **training), ()) == []


def test_nodes_of_the_script_count_too() -> None:
    joins = [ScriptedEvent(3, None, "join", f"t{n}") for n in range(2, 61)] + [ScriptedEvent(9, None, "kill", "t1")]
    assert hints(job(1), joins) == [
        "--partitions 16: fewer than the 60 tasks that the nodes can run at a time",
        "--shards 4: no more nodes can serve; half of the transient ones are 30",
    ]
    assert hints(job(1, stage=1), joins) == [
        "--partitions 16: fewer than the 61 tasks that the nodes can run at a time"
    ], "nobody of them serves, and the reliable one works"


def test_a_figure_of_a_driver_replaces_none_of_the_job(tmp_path: Path) -> None:
    result = {"losses": [[1, 0.5]], "driver_figures": {"losses": 3.0, "redone_rounds": 2}}
    figures = figures_of("job", Blobs(tmp_path.as_uri()), result, (), ())
    assert (figures["losses"], figures["redone_rounds"]) == ([[1, 0.5]], 2)
