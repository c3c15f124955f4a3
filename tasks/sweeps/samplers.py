"""Samplers: which settings the trials of a sweep try. A grid, random draws, and the samplers of Optuna.

A setting depends on the sweep, the number of its trial, and the trials before it as they stand: nothing else is kept.
For a sampler of Optuna a study is made in memory from these trials and thrown away; the journal of the sweep is the
only record.
"""

import logging
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from proteus_spot.bidding.tuning.space import Parameter, ParameterKind, Params, draw, setting_key
from proteus_spot.bidding.tuning.sweep_events import SamplerFailed, Setting, TrialsProposed
from proteus_spot.bidding.tuning.sweep_record import SweepRecord
from proteus_spot.bidding.tuning.trials import TrialState
from proteus_spot.infra.errors import InputError
from proteus_spot.tasks.sweeps.sweep_spec import GRID, RANDOM, SweepSpec

if TYPE_CHECKING:
    import optuna

_log = logging.getLogger(__name__)

#: Samplers that keep their state in the study: it is replayed trial by trial. For the others the trials are enough.
_STATEFUL = frozenset({"CmaEsSampler", "NSGAIISampler", "NSGAIIISampler", "QMCSampler"})
#: Samplers that look at no value.
_BLIND = frozenset({GRID, RANDOM, "RandomSampler", "QMCSampler", "BruteForceSampler"})


#: States of a trial whose value does not count yet.
_UNFINISHED = frozenset({TrialState.WAITING, TrialState.RUNNING, TrialState.EVICTED})


@dataclass(frozen=True, slots=True)
class SampledTrial:
    """A trial as a sampler sees it.

    Attributes
    ----------
    params : its setting.
    value : the metric that counts for it: at its last step, or the one predicted for a trial that does not go on; None
        where it is not a finite number.
    is_running : whether a better value may come yet.
    """

    number: int
    params: Params
    value: float | None
    is_running: bool


def sampled_trials(sweep: SweepRecord) -> tuple[SampledTrial, ...]:
    """Return the trials of a sweep as its sampler sees them, in the order of their numbers.

    The value of a trial that has paused counts: the stopping rule waits for all of them to pause, and a sampler that
    learns would know nothing until then.
    """
    return tuple(
        SampledTrial(
            number,
            cast(Params, dict(trial.params)),
            trial.value if trial.predicted is None else trial.predicted,
            trial.state in _UNFINISHED,
        )
        for number, trial in sorted(sweep.trials.items())
    )


def is_adaptive(spec: SweepSpec) -> bool:
    """Return whether the sampler needs values of earlier trials; else all settings can be proposed at once."""
    return spec.sampler not in _BLIND


def propose(spec: SweepSpec, trials: Sequence[SampledTrial], count: int) -> tuple[tuple[int, Params], ...]:
    """Return the settings of the next trials with their numbers, at most `count`; none when the sweep has all of them.

    Parameters
    ----------
    trials : every trial that was proposed, in the order of their numbers, which count from 0.

    Raises
    ------
    InputError
        If the sampler cannot be used with this search space, or a package that it needs is missing.
    """
    first = len(trials)
    numbers = range(first, min(first + count, spec.trial_count))
    if not numbers:
        return ()
    settings = spec.settings
    known = tuple((number, settings[number]) for number in numbers if number < len(settings))
    numbers = numbers[len(known) :]
    if spec.sampler == RANDOM:
        return (*known, *((number, draw(spec.parameters, spec.seed, number)) for number in numbers))
    if not numbers:
        return known
    begun = (SampledTrial(number, params, None, True) for number, params in known)
    return (*known, *_ask_optuna(spec, (*trials, *begun), numbers))


def proposal(spec: SweepSpec, sweep: SweepRecord, count: int, at_s: int) -> TrialsProposed | SamplerFailed:
    """Return the settings of the next trials as an event, or that the sampler has failed; see `propose`.

    A sampler is the code of a library: whatever it raises in mid-sweep, the trials that the sweep has must go on.
    """
    try:
        settings = propose(spec, sampled_trials(sweep), count)
    except Exception as error:  # noqa: BLE001 - a library may raise anything
        why = str(error) if isinstance(error, InputError) else f"sampler {spec.sampler}: {error!r}"
        why = " ".join(why.split())
        _log.error("sweep %s: goes on with its %d trials: %s", spec.job_id, len(sweep.trials), why)
        return SamplerFailed(at_s, why)
    return TrialsProposed(at_s, tuple(Setting(number, params) for number, params in settings))


def check_extension(spec: SweepSpec, sweep: SweepRecord) -> None:
    """Refuse a description whose known settings are not those of the trials that a sweep has tried by their numbers."""
    for number, params in enumerate(spec.settings):
        trial = sweep.trials.get(number)
        if trial is not None and setting_key(params) != setting_key(cast(Params, dict(trial.params))):
            raise InputError(
                f"sweep {spec.job_id}: trial {number} was begun with another setting; a grid may grow at its end only "
                "(by choices of its first parameter, in the order of names)"
            )


def check_sampler(spec: SweepSpec) -> None:
    """Refuse a sampler that cannot propose settings for this sweep; `InputError` names it and the fix."""
    values = (SampledTrial(number, draw(spec.parameters, 0, number), float(number), False) for number in range(2))
    small = spec if spec.sampler == GRID else spec.model_copy(update={"trials": 3, "first": []})
    propose(small, tuple(values)[: spec.trial_count], 1)


def _ask_optuna(spec: SweepSpec, trials: Sequence[SampledTrial], numbers: range) -> tuple[tuple[int, Params], ...]:
    try:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            study = optuna.create_study(direction=spec.metric.direction, sampler=_sampler(spec, 0))
            space = {name: _distribution(parameter) for name, parameter in spec.parameters.items()}
            for earlier in spec.known_trials:
                params = _to_optuna(spec.parameters, earlier.params)
                study.add_trial(
                    optuna.trial.create_trial(value=earlier.value, params=params, distributions=dict(space))
                )
            for trial in trials:
                _enter(spec, study, space, trial)
            return tuple((number, _ask(spec, study, space, number)) for number in numbers)
    except ImportError as error:
        names = [error.name] if error.name else re.findall(r"'([\w.-]+)'", str(error))
        needed = names[0] if names else "another package"
        raise InputError(
            f"sampler {spec.sampler}: needs {needed}, which is not installed; install it, or write sampler: TPESampler"
        ) from None
    except ValueError as error:
        raise InputError(f"sampler {spec.sampler}: {' '.join(str(error).split())}; choose another sampler") from None


def _sampler(spec: SweepSpec, number: int) -> "optuna.samplers.BaseSampler":
    """Return the sampler as it proposes trial `number`: a seed by number makes it the same in every process."""
    import optuna

    seed = int(np.random.SeedSequence([spec.seed, number]).generate_state(1)[0])
    options: dict[str, Any] = {"seed": seed}
    match spec.sampler:
        case "TPESampler":
            options["constant_liar"] = True  # settings near those of running trials are avoided
        case "QMCSampler":
            options = {"seed": int(np.random.SeedSequence(spec.seed).generate_state(1)[0]), "scramble": True}
            options["warn_independent_sampling"] = False
        case "CmaEsSampler":
            options["warn_independent_sampling"] = False
    sampler: optuna.samplers.BaseSampler = getattr(optuna.samplers, spec.sampler)(**options)
    return sampler


def _enter(spec: SweepSpec, study: "optuna.Study", space: Mapping[str, Any], trial: SampledTrial) -> None:
    """Enter an earlier trial into the study."""
    from optuna.trial import TrialState, create_trial

    params = _to_optuna(spec.parameters, trial.params)
    state = TrialState.RUNNING if trial.is_running else TrialState.FAIL if trial.value is None else TrialState.COMPLETE
    value = trial.value if state is TrialState.COMPLETE else None
    if spec.sampler not in _STATEFUL:
        study.add_trial(create_trial(state=state, value=value, params=params, distributions=dict(space)))
        return
    study.sampler = _replaying(_sampler(spec, trial.number), params)
    asked = study.ask(dict(space))
    if state is not TrialState.RUNNING:
        study.tell(asked, value, state=state)


def _replaying(sampler: "optuna.samplers.BaseSampler", params: Mapping[str, Any]) -> "optuna.samplers.BaseSampler":
    """Return a sampler that does in the study what `sampler` does for a new trial, and proposes `params`."""
    from optuna.samplers import BaseSampler

    class Replaying(BaseSampler):
        def infer_relative_search_space(self, study: Any, trial: Any) -> Any:
            return sampler.infer_relative_search_space(study, trial)

        def sample_relative(self, study: Any, trial: Any, search_space: Any) -> Any:
            sampler.sample_relative(study, trial, search_space)
            return {name: params[name] for name in search_space}

        def sample_independent(self, study: Any, trial: Any, param_name: str, param_distribution: Any) -> Any:
            return params[param_name]

        def before_trial(self, study: Any, trial: Any) -> None:
            sampler.before_trial(study, trial)

        def after_trial(self, study: Any, trial: Any, state: Any, values: Any) -> None:
            sampler.after_trial(study, trial, state, values)

    return Replaying()


def _ask(spec: SweepSpec, study: "optuna.Study", space: Mapping[str, Any], number: int) -> Params:
    study.sampler = _sampler(spec, number)
    return _from_optuna(spec.parameters, study.ask(dict(space)).params)


def _distribution(parameter: Parameter) -> "optuna.distributions.BaseDistribution":
    """Return Optuna's form of a parameter; a choice is its index, since Optuna takes 1, 1.0 and true for one value."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    match parameter.kind:
        case ParameterKind.CHOICE:
            return CategoricalDistribution(tuple(range(len(parameter.choices))))
        case ParameterKind.INT:
            return IntDistribution(int(parameter.low), int(parameter.high))
        case _:
            return FloatDistribution(parameter.low, parameter.high, log=parameter.kind is ParameterKind.LOG)


def _to_optuna(space: Mapping[str, Parameter], params: Params) -> dict[str, Any]:
    return {
        name: _index(parameter, params[name]) if parameter.kind is ParameterKind.CHOICE else params[name]
        for name, parameter in space.items()
    }


def _from_optuna(space: Mapping[str, Parameter], values: Mapping[str, Any]) -> Params:
    return {
        name: parameter.choices[values[name]] if parameter.kind is ParameterKind.CHOICE else values[name]
        for name, parameter in space.items()
    }


def _index(parameter: Parameter, value: Any) -> int:
    return next(
        index for index, choice in enumerate(parameter.choices) if choice == value and type(choice) is type(value)
    )
