"""Figures and remarks of a driver, on the pages of a training and of a job."""

from pathlib import Path

from proteus_spot.infra.state.records import JobState
from proteus_spot.infra.storage.blobs import Blobs
from proteus_spot.reports.pages.job_page import PageFigure
from proteus_spot.tasks.local_nodes.node_training import figures_of
from proteus_spot.tasks.reports.job_report import gather
from proteus_spot.tasks.reports.training_page import training_page
from proteus_spot.tasks.training import running_controller as controller
from tests.support.task_runtime import TaskRuntime, spec
from tests.tasks.market.test_offers import status

FIGURES = {"redone_rounds": 2, "approximated": 3}
REMARK = "round 0: partitions 3 are away"


def test_the_page_of_a_training_shows_them(tmp_path: Path) -> None:
    result = {"clocks": 4, "passes": 2.5, "driver_figures": FIGURES, "remarks": [REMARK]}
    page = training_page(figures_of("job", Blobs(tmp_path.as_uri()), result, (), ()))
    shown = {each.label: each.value for each in page.figures}
    assert [shown[label] for label in ("passes", "redone rounds", "approximated")] == ["2.5", "2", "3"]
    assert [table.rows for table in page.tables if table.key == "remarks"] == [((REMARK,),)]


def test_the_page_of_a_job_shows_them_while_it_runs_and_when_it_has_ended(here: TaskRuntime) -> None:
    here.begin(spec())
    controller.note("job", status([], None) | {"passes_done": 1.25, "driver_figures": FIGURES})
    running = gather(here.store, "job").figures
    assert PageFigure("Redone rounds", "2", "a figure of the driver") in running
    assert PageFigure("Passes", "1.25", "over the data") in running
    result = {"clocks": 3, "passes": 5.0, "driver_figures": FIGURES | {"redone_rounds": 4}, "remarks": [REMARK]}
    here.store.jobs.move_job("job", JobState.FINISHED, here.clock.at_s, result=result)
    page = gather(here.store, "job")
    assert PageFigure("Redone rounds", "4", "a figure of the driver") in page.figures
    assert PageFigure("Passes", "5", "over the data") in page.figures
    assert ("remarks", REMARK) in page.about[1].rows
