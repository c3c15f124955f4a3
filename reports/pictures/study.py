"""A sweep in Optuna's own plots: the importance of parameters, parallel coordinates, contours."""

import threading
import warnings
from collections.abc import Callable
from typing import Any

from proteus_spot.bidding.tuning.space import ParameterKind
from proteus_spot.reports.pictures.figures import svg
from proteus_spot.reports.sweep_view import MOST_DRAWN, SweepView

#: Fewer trials with a value say nothing of the importance of a parameter.
LEAST_TRIALS = 4
#: Maximum number of parameters of a contour: each pair has a field of its own.
_MOST_PARAMETERS = 4
#: Optuna draws by pyplot, whose state is that of the process.
_DRAWING = threading.Lock()


def study_svgs(view: SweepView) -> dict[str, bytes]:
    """Return the plots by their keys: ``importance``, ``parallel`` and ``contour``; those that there are values for."""
    trials = [trial for trial in view.ranked() if trial.value is not None][:MOST_DRAWN]
    if len(trials) < LEAST_TRIALS:
        return {}
    import matplotlib.pyplot as plt
    import optuna
    from optuna.visualization import matplotlib as plots

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = _study(view, trials)
    names = [name for name in view.space if len({repr(trial.params[name]) for trial in trials}) > 1]
    if not names:
        return {}
    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
    draws: dict[str, Callable[[], Any]] = {
        "importance": lambda: plots.plot_param_importances(study, evaluator=evaluator, params=names),
        "parallel": lambda: plots.plot_parallel_coordinate(study, params=names, target_name=view.metric),
    }
    if len(names) > 1:
        draws["contour"] = lambda: plots.plot_contour(study, params=names[:_MOST_PARAMETERS], target_name=view.metric)
    drawn = {}
    with _DRAWING, warnings.catch_warnings(), plt.rc_context():
        warnings.simplefilter("ignore")
        plt.switch_backend("agg")
        for key, draw in draws.items():
            try:
                draw()
                plt.gcf().set_size_inches(10.0, 10.0 if key == "contour" and len(names) > 2 else 4.5)
                plt.gcf().subplots_adjust(left=0.16, bottom=0.28 if key == "parallel" else 0.12)
                drawn[key] = svg(plt.gcf())
            except (ValueError, RuntimeError):  # values that no plot can be made of: equal ones, say
                continue
            finally:
                plt.close("all")
    return drawn


def _text(choice: Any) -> str:
    return choice if isinstance(choice, str) and not _is_like_a_value(choice) else repr(choice)


def _is_like_a_value(text: str) -> bool:
    return text in ("True", "False", "None") or text.replace(".", "", 1).lstrip("-").isdigit()


def _study(view: SweepView, trials: list[Any]) -> Any:
    import optuna

    space: dict[str, Any] = {}
    for name, parameter in view.space.items():
        if parameter.kind is ParameterKind.CHOICE:
            space[name] = optuna.distributions.CategoricalDistribution([_text(each) for each in parameter.choices])
        elif parameter.kind is ParameterKind.INT:
            space[name] = optuna.distributions.IntDistribution(int(parameter.low), int(parameter.high))
        else:
            is_log = parameter.kind is ParameterKind.LOG
            space[name] = optuna.distributions.FloatDistribution(parameter.low, parameter.high, log=is_log)
    study = optuna.create_study(direction="maximize" if view.direction == "maximize" else "minimize")
    for trial in trials:
        params = {
            name: _text(trial.params[name]) if view.space[name].kind is ParameterKind.CHOICE else trial.params[name]
            for name in space
        }
        study.add_trial(optuna.trial.create_trial(value=trial.value, params=params, distributions=space))
    return study
