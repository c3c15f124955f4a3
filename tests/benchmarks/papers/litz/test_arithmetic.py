"""What the parts of benchmark `litz` work out, without a node."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from proteus_spot.benchmarks.papers.litz import memory, scale_in, scale_out
from proteus_spot.benchmarks.papers.litz.corpus import drawn_set
from proteus_spot.benchmarks.papers.litz.scaled_runs import ScaledRun, link_rate
from proteus_spot.benchmarks.papers.litz.waiting_job import MeasuredJob, StandIn, WaitingApplication
from proteus_spot.infra.storage.blobs import Blobs
from proteus_spot.infra.urls import file_url
from proteus_spot.psengine.apps.registry import resolve
from proteus_spot.psengine.single_process import initial, train_alone

#: Eight nodes, ten clocks; a clock waits the kernels' time of two passes of 2 s.
LDA = StandIn(MeasuredJob("lda", 1_000_000, 64_000_000, 8_000_000, 2.0), 8, 10, 2.0)
MLR = StandIn(MeasuredJob("mlr", 30_000, 0, 8_000_000, 2.0), 8, 10, 2.0)


def test_memory_is_the_mean_of_each_pass_without_the_first_clock() -> None:
    clocks = [[1, 9, 9, 9, 2], *([clock, 1_000_000 * clock, 2_000_000, 3_000_000, 2] for clock in range(2, 10))]
    found = memory.by_pass(clocks)
    assert {kind: values.tolist() for kind, values in found.items()} == {
        "tables": [3.5, 7.5],
        "states": [2.0, 2.0],
        "input": [3.0, 3.0],
    }
    assert memory.by_pass([clocks[1], *clocks[3:]])["tables"].tolist() == pytest.approx([11 / 3, 7.5])


def test_memory_that_falls_stands_beside_the_first_pass_and_beside_full_arrays() -> None:
    input_mb = np.array([10.0, 10.0])
    sparse = {"tables": np.array([50.0, 20.0]), "states": np.array([5.0, 5.0]), "input": input_mb}
    full = {"tables": np.array([80.0, 80.0]), "states": np.array([5.0, 5.0]), "input": input_mb}
    found = list(memory.figures(sparse, full, "sizes"))
    assert [(one.ours, one.beside) for one in found] == [(20.0, 50.0), (20.0, 80.0), (35.0, 65.0), (35.0, 95.0)]
    assert found[0].note == "60% less; the paper: 80% less; sizes"
    assert next(memory.figures(full | {"tables": np.array([50.0, 55.0])}, full, "")).note.startswith("10% more")


def test_a_job_that_scales_out_stands_beside_the_ideal_and_beside_half_of_the_nodes() -> None:
    scaled = ScaledRun([2.0] * 3 + [1.5] + [1.0] * 6, 3, 0.4)
    runs = scale_out.ScaleOutRuns(ScaledRun([2.0] * 10, None, 0.2), ScaledRun([1.0] * 10, None, 0.3), scaled)
    ideal, static = scale_out.figures(LDA, [runs])
    assert (ideal.ours, ideal.beside, static.ours, static.beside) == (13.5, 13.0, 13.5, 20.0)
    assert ideal.note.startswith("added after clock 3 of 10; kernels of 4.0 s a clock (2.0 passes)")
    assert ideal.verdict == "asked: at most 1.08 times that: holds"
    assert static.verdict == "asked: at most 0.75 times that: holds"
    assert next(scale_out.figures(MLR, [runs])).verdict.endswith("1.01 times that: does not hold")
    busy = scale_out.ScaleOutRuns(runs.few, runs.many, ScaledRun(scaled.seconds, 3, 0.9))
    assert not any(one.valid for one in scale_out.figures(LDA, [runs, busy]))
    assert next(scale_out.figures(LDA, [busy])).verdict.endswith("not judged, the measurement is not valid")


def test_the_time_to_release_stands_beside_that_of_the_states_on_the_links() -> None:
    few = ScaledRun([2.0] * 10, None, 0.2)
    release = scale_in.ReleasedNodes(ScaledRun([1.0] * 4 + [9.0] + [2.5] * 5, 3, 0.4), 6.0, 4)
    assert link_rate(LDA) == 2_000_000
    found, later = scale_in.figures(LDA, [(few, release)])
    assert (found.ours, found.beside, found.holds) == (6.0, 4.0, True)
    assert (later.ours, later.beside, later.holds) == (2.5, 2.0, False)
    assert later.note.startswith("5 clocks")
    mlr = next(scale_in.figures(MLR, [(few, release)]))
    assert (mlr.beside, mlr.holds) == (scale_in.MLR_S, False)


def test_a_job_that_ends_with_the_release_has_no_clock_after_it() -> None:
    ended = scale_in.ReleasedNodes(ScaledRun([1.0] * 10, 3, 0.4), 6.0, 10)
    assert len(list(scale_in.figures(LDA, [(ScaledRun([2.0] * 10, None, 0.2), ended)]))) == 1


@pytest.mark.parametrize("job", [LDA, MLR])
def test_a_stand_in_has_the_sizes_of_the_measured_job_and_counts_each_task_once(job: StandIn, tmp_path: Path) -> None:
    config = job.config("job", Blobs(file_url(tmp_path)), 4)
    assert config.app_params["seconds"] * job.executors == job.clock_s == 4.0
    app = resolve(config.app, {**config.app_params, "seconds": 0.0})
    assert isinstance(app, WaitingApplication)
    sizes = {table.name: table.n_rows * table.n_cols * 4 for table in app.tables()}
    assert sizes["table"] == pytest.approx(job.measured.table_bytes, rel=0.2)
    assert sizes.get("state", 0) == pytest.approx(job.measured.state_bytes, rel=0.01)
    parts = [app.prepare({"partition": np.array([number]), "input": np.zeros(1)}) for number in range(job.executors)]
    tables = train_alone(app, parts, initial(app, 0), job.clocks)
    job.check(app.evaluate(tables, {}))
    tables["table"] += 1
    with pytest.raises(RuntimeError, match="micro-tasks were done"):
        job.check(app.evaluate(tables, {}))


def test_drawn_documents_are_cut_into_partitions() -> None:
    parts = list(drawn_set(12, 40, 3, 10.0, 3).parts(0))
    assert len(parts) == 3
    assert sum(len(part["offsets"]) - 1 for part in parts) == 12


def test_the_example_of_the_page_prints_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).resolve().parents[4] / "benchmarks" / "papers" / "litz" / "README.md").read_text()
    ((code, output),) = re.findall(r"```python\n(.*?)```\n\n    (.*?)\n", page, re.DOTALL)
    exec(code, {})  # noqa: S102 # the page's own
    assert capsys.readouterr().out.strip() == output
