"""`proteus train`: the engine alone on local nodes, from the options of a job to its figures."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from proteus_spot.bidding.market.model import HOUR_S, MINUTE_S
from proteus_spot.flows.terminal.interrupts import Interrupted, Interrupts
from proteus_spot.flows.terminal.run_view import Display
from proteus_spot.flows.terminal.train_view import TrainingMoment, closing_table, display, event_log_table
from proteus_spot.infra.clock import SystemClock
from proteus_spot.infra.errors import InputError, JobFailed, ProteusError
from proteus_spot.infra.extras import need_extra
from proteus_spot.infra.local_market.environment import own_directory
from proteus_spot.psengine.controller.model_saving import NOT_SAVED
from proteus_spot.studies.job_spec import Training
from proteus_spot.tasks.local_market.run_checks import check_directory
from proteus_spot.tasks.local_nodes.event_script import NodeEventScript, read_script
from proteus_spot.tasks.local_nodes.explanations import subject
from proteus_spot.tasks.local_nodes.node_training import LocalJob, LocalTraining, figures_of, hints, open_store
from proteus_spot.tasks.local_nodes.run_files import RunFiles
from proteus_spot.tasks.reports.training_page import write_training_report
from proteus_spot.tasks.training.application_checks import check_application
from proteus_spot.tasks.training.data_checks import asked_training, has_same_data
from proteus_spot.tasks.training.hints import loss_hint

#: Default number of clocks of a job.
CLOCKS = 50
#: Bytes for logs and the smallest data, model and checkpoint.
_NEEDED_BYTES = 2**20
_TIERS = {"r": "reliable", "t": "transient"}
_MOST_NODES = 64


@dataclass(frozen=True)
class TrainRun:
    """What a training on local nodes has besides its job.

    Attributes
    ----------
    again : the command that continues the job.
    directory : holds the logs, and the blobs if `checkpoint` is None.
    checkpoint, events, report, explain, dashboard : as the options of `proteus train`.
    """

    again: str
    directory: Path
    checkpoint: str | None
    events: Path | None
    report: Path | None
    explain: tuple[str, ...]
    dashboard: bool


def train_locally(job: LocalJob, run: TrainRun, interrupts: Interrupts, quiet: bool = False) -> dict[str, Any]:
    """Train one job on this machine to its end; return its figures, those of an ended job again.

    Raises
    ------
    InputError
        If an option is invalid, before anything is started.
    Interrupted
        If a signal asked to end, after the state is saved and every process ended.
    """
    if run.dashboard:
        need_extra("local", "--dashboard")
    job_id, directory = job.job_id, run.directory
    events = () if run.events is None else read_script(run.events, job.tiers, job.training.clocks)
    check_application(job.training, code=False)  # its file is checked when it is shipped
    check_directory("--dir", directory, _NEEDED_BYTES)
    show = display(quiet)
    with own_directory(directory):
        blobs = open_store("--checkpoint", run.checkpoint or str(directory / "blobs"))
        books = RunFiles(blobs, job_id)
        wanted = _defining(job)
        begun = books.check(wanted, partial(has_same_data, blobs, job_id, job.training))
        names = (*job.tiers, *(event.node for event in events))
        subjects = [subject(blobs, job_id, text, names, job.training.shards) for text in run.explain]

        def tell() -> None:
            for of in subjects:
                show.console.print(event_log_table(of.title, of.lines(blobs, job_id)))

        if begun and (result := books.trained()) is not None:
            show.say(f"job {job_id} was trained to its end before; these are its figures")
            figures = books.figures() or figures_of(job_id, blobs, result, [], books.applied_events())
        else:
            script = NodeEventScript(events, books.applied_events_of(events))
            training = LocalTraining(directory, blobs, job, books, script, run.dashboard)
            with _also_if_broken_off(tell, show), training, _pausing(training, books, job, run.again, interrupts):
                show.say(f"job {job_id}: nodes {job.nodes} on this machine; state in {directory}")
                for hint in hints(job, events):
                    show.say(hint)
                show.say("1/3 data: it is read and cut")
                for note in training.prepare():
                    show.say(f"data: {note}")
                show.say("2/3 controller: it starts")
                with books.beginning(wanted):
                    clock = training.start(show.say)
                if training.dashboard:
                    show.say(f"dashboard: {training.dashboard}")
                if clock:
                    show.say(f"goes on from clock {clock}")
                show.say("3/3 nodes: they join")
                figures = _follow(training, job_id, show, interrupts)
            for event in script.to_come:
                show.say(f"--events {run.events}: {event.at} never came, so {event.action} {event.node} was left out")
    show.console.print(closing_table(figures))
    tell()
    if run.report is not None:
        write_training_report(figures, run.report)
        show.say(f"report: {run.report}")
    show.say(f"model: {figures['model']}")
    if hint := loss_hint(job.training, figures["losses"] or [], figures["metrics"]):
        show.say(f"hint: {hint}")
    return figures


def _follow(
    training: LocalTraining, job_id: str, show: Display[TrainingMoment], interrupts: Interrupts
) -> dict[str, Any]:
    """Show the training and run its event script until it ends; return its figures."""
    last = reason = damage = ""
    n_remarks = 0
    try:
        while not training.ended(status := training.look()):
            if status["reason"] != reason and status["reason"].startswith(NOT_SAVED):
                show.say(status["reason"])  # it is retried for over a minute, without other output
            reason = status["reason"]
            if status["damage"] != damage:
                show.say(damage := status["damage"])
            for last in training.carry_out(status):
                show.say(last)
            for remark in status["remarks"][n_remarks:]:
                show.say(remark)
            n_remarks = len(status["remarks"])
            show.show(TrainingMoment(job_id, status, last), SystemClock().now_s())
            training.wait()
        for remark in status["remarks"][n_remarks:]:
            show.say(remark)
    finally:
        show.close()
    interrupts.hold()
    return training.finish(status)


@contextmanager
def _also_if_broken_off(explain: Callable[[], None], show: Display[TrainingMoment]) -> Iterator[None]:
    """Print the event logs also of a failed or interrupted training, for which they matter most."""
    try:
        yield
    except InputError:
        raise  # nothing was started
    except (ProteusError, Interrupted):
        try:
            explain()
        except ProteusError as error:
            show.say(f"the event log could not be read: {error}")
        raise


@contextmanager
def _pausing(
    training: LocalTraining, books: RunFiles, job: LocalJob, again: str, interrupts: Interrupts
) -> Iterator[None]:
    """Save the state, end all processes and add the command to continue, if an error or a signal ends the context."""
    try:
        yield
    except InputError:
        raise
    except (ProteusError, Interrupted) as error:
        interrupts.hold()
        outcome = f"{_outcome(training, books, job, isinstance(error, JobFailed))}: {again}"
        if isinstance(error, Interrupted):
            error.outcome = outcome
            raise
        kind = JobFailed if isinstance(error, JobFailed) else ProteusError
        raise kind(f"{error}; {outcome}") from error


def _outcome(training: LocalTraining, books: RunFiles, job: LocalJob, failed: bool) -> str:
    """Save the state; return the progress of the job, and the next step."""
    reached = training.clock
    try:
        clock = training.keep()
        if books.trained() is not None:
            return f"job {job.job_id} is trained; to see its figures"
    except ProteusError as error:
        return f"job {job.job_id}: how far it came could not be read ({error}); to go on"
    total = "" if job.training.clocks is None else f" of {job.training.clocks}"
    if failed:
        last = job.training.clocks is not None and reached >= job.training.clocks
        where = f"after clock {reached}" if last else f"in clock {reached + 1}"
        start = f"from clock {clock}" if clock else "from the beginning"
        return f"job {job.job_id} failed {where}{total}; a second run starts {start}; to go on"
    return f"job {job.job_id} is at clock {clock}{total}; to go on"


def given_training(app: str, asked: Mapping[str, Any], stage_above: str) -> Training:
    """Return the training that options describe.

    Parameters
    ----------
    asked : the values of the options, by field; times are seconds.
    stage_above : the two ratios of nodes above which stages 2 and 3 apply.

    Raises
    ------
    InputError
        One line that names the option and the fix.
    ValidationError
        If a value is none that its field can have.
    """
    training = asked_training(app, asked)
    seconds, clocks = training["hours"], training["clocks"]
    if clocks is None and seconds is None and training["passes"] is None:
        clocks = CLOCKS
    second, third = _ratios(stage_above)
    return Training.model_validate(
        {
            **training,
            "clocks": clocks,
            "hours": None if seconds is None else seconds / HOUR_S,
            "checkpoint_minutes": training["checkpoint_minutes"] / MINUTE_S,
            "evaluate_every": _evaluate_every(training["evaluate_every"], clocks),
            "stage_2_above": second,
            "stage_3_above": third,
        }
    )


def _evaluate_every(asked: int | None, clocks: int | None) -> int | None:
    """Return the number of clocks between evaluations; by default about ten evaluations in all.

    A job that ends by time alone has no number of clocks to divide: it is evaluated only with `--evaluate-every`.
    """
    if asked is None:
        return None if clocks is None else max(1, clocks // 10)
    return asked or None


def asked_tiers(text: str) -> dict[str, str]:
    """Return {node: tier} of `r=1,t=3`: r1, t1, t2, t3."""
    tiers: dict[str, str] = {}
    seen: set[str] = set()
    for part in text.split(","):
        letter, _, count = part.strip().partition("=")
        if letter not in _TIERS or letter in seen or not count.isdecimal():
            raise InputError(f"--nodes {text}: want the numbers of reliable and of transient nodes, as in r=1,t=3")
        seen.add(letter)
        if int(count) > _MOST_NODES:
            raise InputError(f"--nodes {text}: at most {_MOST_NODES} of a tier")
        tiers |= {f"{letter}{number + 1}": _TIERS[letter] for number in range(int(count))}
    if "reliable" not in tiers.values():
        raise InputError(f"--nodes {text}: the model is served by reliable nodes; give at least r=1")
    return tiers


def _ratios(text: str) -> tuple[float, float]:
    """Return the two ratios of `1,15`."""
    try:
        second, third = (float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--stage-above {text}: want two numbers, as in 1,15") from None
    if not 0 <= second <= third < float("inf"):
        raise InputError(f"--stage-above {text}: want ratios from 0 on, the second no less than the first")
    return second, third


def _defining(job: LocalJob) -> dict[str, Any]:
    """Return the values that must not change when a job continues, by option; others, such as threads, may."""
    training = job.training
    return {
        "APP": training.app,
        "--data": training.data,
        **({"--label": training.label} if training.label else {}),
        **({"--empty": training.empty} if training.empty != "refuse" else {}),
        "--nodes r=": job.n_reliable,
        "--staleness": training.staleness,
        "--clocks": training.clocks,
        "--passes": training.passes,
        "--seconds": None if training.hours is None else round(training.hours * HOUR_S, 6),
        "--partitions": training.partitions,
        "--shards": training.shards,
        "--seed": training.seed,
        **{f"--param {name}": value for name, value in training.app_params.items()},
    }
