"""A whole sweep on this machine: real processes, interrupted and continued, with its best model saved."""

import json
import signal
import threading
from pathlib import Path

import numpy as np
import pytest

from proteus_spot.infra.errors import InputError
from proteus_spot.infra.trials.saved_states import unpack_state
from proteus_spot.tasks.sweeps.local_sweep import LocalProgress, LocalSweep
from proteus_spot.tasks.sweeps.sweep_spec import SweepSpec, parse_sweep

CODE = """
import numpy as np

def train(trial):
    weights = trial.restore()
    weights = np.zeros(3) if weights is None else weights["weights"]
    assert open(trial.data).read() == "rows"
    for step in trial.steps():
        weights += trial.params["rate"]
        trial.report(step, loss=trial.params["rate"] / step)
        if trial.params["rate"] == 3 and step == 2:
            raise ValueError("no luck")
        trial.save({"weights": weights})
        if trial.params["waits"]:
            import time
            time.sleep(0.1)
"""


def spec(folder: Path, waits: bool = False, rates: tuple[int, ...] = (2, 1), **changes: object) -> SweepSpec:
    (folder / "mine.py").write_text(CODE)
    (folder / "rows.csv").write_text("rows")
    record = {
        "trial": "mine:train",
        "code": str(folder / "mine.py"),
        "data": str(folder / "rows.csv"),
        "space": {"rate": {"choice": list(rates)}, "waits": {"choice": [waits]}},
        "metric": {"name": "loss"},
        "max_trial_steps": 20,
        "theta": 0.5,
        "mcnt": 1,
        "parallel": 2,
        **changes,
    }
    return parse_sweep(record, "sweep.yaml: ", "digits")


def test_a_sweep_is_interrupted_and_goes_on_to_its_end(tmp_path: Path) -> None:
    changes: list[LocalProgress] = []

    def interrupt(progress: LocalProgress) -> None:
        changes.append(progress)
        if progress.steps >= 2:
            signal.raise_signal(signal.SIGINT)

    assert threading.current_thread() is threading.main_thread()
    described = spec(tmp_path, waits=True)
    first = LocalSweep(described, tmp_path / "run", interrupt)
    first.open()
    assert not first.run()
    assert first.signal_number == signal.SIGINT
    with (tmp_path / "run" / "journal.jsonl").open("a") as journal:
        journal.write('{"cut sho')  # as a kill leaves it
    second = LocalSweep(described, tmp_path / "run")
    second.open()
    assert second.run()
    result = second.result()
    assert (result["sweep_id"], result["state"]) == ("digits", "finished")
    assert result["best"] == {"params": {"rate": 1, "waits": True}, "value": 0.05, "steps": 20}
    assert [trial["state"] for trial in result["trials"]] == ["stopped_early", "finished"]
    assert sum(trial["repeated_steps"] for trial in result["trials"]) == 0, "the states of an interrupt are complete"
    best = second.save_best()
    assert best is not None
    assert (unpack_state(best)["weights"] == np.full(3, 20.0)).all()
    assert json.loads((best / "setting.json").read_text())["params"] == {"rate": 1, "waits": True}
    third = LocalSweep(described, tmp_path / "run")  # one that has ended shows its figures again
    third.open()
    assert third.run()
    assert third.result() == result


def test_a_trial_that_fails_three_times_does_not_stop_the_others(tmp_path: Path) -> None:
    sweep = LocalSweep(spec(tmp_path, rates=(3, 1), stop="none"), tmp_path / "run")
    sweep.open()
    assert sweep.run()
    failed, finished = sweep.result()["trials"]
    assert (failed["state"], failed["steps"], finished["state"]) == ("failed", 2, "finished")
    assert failed["why"] == "ValueError: no luck (mine.py, line 12, in train)"


def test_an_application_of_the_engine_is_a_trial_and_its_model_predicts(tmp_path: Path) -> None:
    from proteus_spot.infra.applications.trained_models import load_model

    described = parse_sweep(
        {
            "trial": "mlr",
            "space": {"step": {"choice": [0.02, 0.05]}},
            "metric": {"name": "accuracy", "direction": "maximize"},
            "max_trial_steps": 6,
            "stop": "none",
        },
        name="digits",
    )
    sweep = LocalSweep(described, tmp_path / "run")
    sweep.open()
    assert sweep.run()
    result, model = sweep.result(), sweep.save_best()
    assert [(trial["state"], trial["steps"]) for trial in result["trials"]] == [("finished", 6)] * 2
    assert result["best"]["value"] == max(trial["value"] for trial in result["trials"]) > 0.5
    app, tables, about = load_model(str(model))
    assert (about.app, about.app_params["step"]) == ("mlr", result["best"]["params"]["step"])
    assert hasattr(app, "predict")
    assert tables["weights"].shape == (65, 10)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"code": "none.py"}, "code none.py: cannot be read: No such file or directory"),
        ({"data": "none.csv"}, "data: none.csv is not there"),
        ({"requirements": "none.txt"}, "requirements: none.txt is not there"),
        ({"trial": "mine:trian"}, "mine.py: .*trian"),
    ],
)
def test_wrong_files_are_refused_before_anything_is_written(
    changes: dict[str, object], message: str, tmp_path: Path
) -> None:
    sweep = LocalSweep(spec(tmp_path, **changes), tmp_path / "run")
    with pytest.raises(InputError, match=message) as caught:
        sweep.open()
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_folder_of_another_sweep_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    LocalSweep(spec(tmp_path), tmp_path / "run").open()
    with pytest.raises(InputError, match="holds a sweep of another description; name another folder by --dir"):
        LocalSweep(spec(tmp_path, max_trial_steps=9), tmp_path / "run").open()


def test_a_sweep_that_has_ended_gets_more_trials_and_goes_on(tmp_path: Path) -> None:
    fields = {"sampler": "random", "max_trial_steps": 2, "stop": "none"}
    for trials in (2, 3, 3):
        sweep = LocalSweep(spec(tmp_path, trials=trials, **fields), tmp_path / "run")
        sweep.open()
        assert sweep.run()
        result = sweep.result()
        assert [trial["state"] for trial in result["trials"]] == ["finished"] * trials
    orders = [json.loads(line)["order_id"] for line in (tmp_path / "run" / "journal.jsonl").open() if "Granted" in line]
    assert orders == ["digits-t0-0", "digits-t1-0", "digits-t2-0"], "no trial was trained twice"
    for change in ({"trials": 2}, {"trials": 4, "max_trial_steps": 3}):
        with pytest.raises(InputError, match="holds a sweep of another description"):
            LocalSweep(spec(tmp_path, **{**fields, **change}), tmp_path / "run").open()


def test_a_grid_grows_at_its_end_only(tmp_path: Path) -> None:
    fields = {"max_trial_steps": 2, "stop": "none"}
    for rates in ((2, 1), (2, 1, 4)):
        sweep = LocalSweep(spec(tmp_path, rates=rates, **fields), tmp_path / "run")
        sweep.open()
        assert sweep.run()
    with pytest.raises(InputError, match="trial 0 was begun with another setting"):
        LocalSweep(spec(tmp_path, rates=(5, 2, 1, 4), **fields), tmp_path / "run").open()
