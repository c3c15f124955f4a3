"""The folder of a sweep on this machine alone: its journal and its description, and the sweep that they show."""

import json
from collections.abc import Sequence
from pathlib import Path

from proteus_spot.bidding.engine.events import BidEvent
from proteus_spot.bidding.engine.journal import JournalError
from proteus_spot.bidding.tuning.sweep_engine import SweepEngine
from proteus_spot.bidding.tuning.sweep_journal import from_record
from proteus_spot.bidding.tuning.views import best_trial
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.files import write_whole
from proteus_spot.reports.sweep_view import SweepView, TrialMachine
from proteus_spot.studies.form_fields import RECORDED
from proteus_spot.tasks.sweeps.sweep_spec import SweepSpec
from proteus_spot.tasks.sweeps.sweep_state import trial_lines

_JOURNAL, _DESCRIPTION = "journal.jsonl", "sweep.json"


def read_journal(directory: Path, engine: SweepEngine, *, is_ours: bool = False) -> Sequence[BidEvent]:
    """Apply the recorded events to a new engine, and return them; a last line that was cut short is left out.

    Parameters
    ----------
    is_ours : whether no other process writes the journal, so that such a line is removed.

    Raises
    ------
    InputError
        One line with the number of the first line that cannot be read or does not follow from those before it.
    """
    file = directory / _JOURNAL
    if not file.exists():
        return []
    data = file.read_bytes()
    complete = data[: data.rfind(b"\n") + 1]
    if complete != data and is_ours:
        write_whole(file, complete)
    events = []
    for number, line in enumerate(complete.splitlines(), start=1):
        try:
            event = from_record(json.loads(line))
            if not isinstance(event, BidEvent):
                raise JournalError("no event")
            engine.handle(event)
        except (ValueError, TypeError, LookupError, AttributeError):  # errors of journals and sweeps are ValueErrors
            raise InputError(
                f"{file}: line {number} is damaged; remove {directory} to begin again, or name another folder by --dir"
            ) from None
        events.append(event)
    return events


def keep_description(directory: Path, spec: SweepSpec) -> None:
    """Write down what the sweep is, for those who look at its folder later."""
    write_whole(directory / _DESCRIPTION, json.dumps(spec.model_dump(mode="json"), indent=1).encode())


def has_local_sweep(directory: Path) -> bool:
    """Return whether a folder holds a sweep of this machine alone that can be shown."""
    return (directory / _JOURNAL).is_file() and (directory / _DESCRIPTION).is_file()


def local_view(directory: Path) -> SweepView:
    """Return the sweep of a folder as it stands, also while it runs; `InputError` if its files cannot be read."""
    file = directory / _DESCRIPTION
    try:
        spec = SweepSpec.model_validate(json.loads(file.read_text()), context=RECORDED)
    except (OSError, ValueError) as error:
        raise InputError(f"{file}: is not readable: {' '.join(str(error).split())}") from None
    engine = SweepEngine()
    read_journal(directory, engine)
    return view_of(directory, spec, engine)


def view_of(directory: Path, spec: SweepSpec, engine: SweepEngine) -> SweepView:
    """Return the sweep of a folder; nothing is paid for it, and its machines are processes."""
    begun_s = float(engine.sweep.opened.at_s)
    ends = [its.ended_at_s for its in engine.holdings.positions.values()]
    last_s = max([engine.holdings.ticked_at_s or begun_s, begun_s + 1, *(end for end in ends if end is not None)])
    return SweepView(
        sweep_id=spec.job_id,
        state=str(engine.sweep.state),
        why=engine.sweep.outcome.why if engine.sweep.outcome is not None else engine.sweep.stopping,
        trial=spec.trial,
        metric=spec.metric.name,
        direction=spec.metric.direction,
        max_trial_steps=spec.max_trial_steps,
        trial_count=engine.sweep.plan.trials,
        space=spec.parameters,
        begun_s=begun_s,
        last_s=last_s,
        ended_s=None if engine.sweep.outcome is None else last_s,
        trials=trial_lines(engine),
        machines=tuple(
            TrialMachine(
                trial=engine.sweep.deployments[name].trial,
                order_id=name,
                market=str(its.allocation.market),
                bid_micros=its.allocation.bid_micros,
                from_s=its.allocation.launched_at_s,
                until_s=its.ended_at_s,
                cause="" if its.cause is None else str(its.cause),
                state_s=engine.sweep.deployments[name].state_s,
            )
            for name, its in engine.holdings.positions.items()
            if name in engine.sweep.deployments
        ),
        best_number=best_trial(engine.sweep),
        name=spec.sweep,
    )
