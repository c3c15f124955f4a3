"""The engine alone on this machine: one job on local nodes, from its options to its figures."""

import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from pydantic import ValidationError

from bidding.market.model import HOUR_S, MINUTE_S
from flows.terminal.interrupts import Interrupted, Interrupts
from flows.terminal.run_view import Display
from flows.terminal.train_view import TrainingMoment, closing_table, display, story_table
from infra.clock import SystemClock
from infra.errors import InputError, JobFailed, ProteusError
from infra.validation import first_fault
from psengine.controller.model_saving import NOT_SAVED
from tasks.job_spec import Training
from tasks.local.checks import check_directory
from tasks.local.environment import run_directory
from tasks.local.event_log import subject
from tasks.local.node_events import NodeEventScript, read_script_file
from tasks.local.run_files import RunFiles
from tasks.local.training import LocalJob, LocalTraining, figures_of, hints, open_store
from tasks.reports.training_page import write_training_report
from tasks.training.application_checks import application, check_application, default_params
from tasks.training.hints import loss_hint
from tasks.training.inputs import absolute_data, default_data

#: A job that is given no other end.
CLOCKS = 50
#: Room for logs and the smallest data, model and checkpoint.
_NEEDED_BYTES = 2**20
_TIERS = {"r": "reliable", "t": "transient"}
_MOST_NODES = 64
_STAGES: Mapping[str, Literal[1, 2, 3] | None] = MappingProxyType({"auto": None, "1": 1, "2": 2, "3": 3})


@dataclass(frozen=True)
class TrainOptions:
    """What `proteus train` was asked for; see its `--help`."""

    app: str
    code: str | None
    params: tuple[str, ...]
    data: str | None
    nodes: str
    stage: str
    stage_above: str
    threads: int
    staleness: int
    clocks: int | None
    seconds: float | None
    partitions: int
    shards: int
    seed: int
    job: str | None
    directory: Path | None
    checkpoint: str | None
    checkpoint_every: float
    evaluate_every: int | None
    events: Path | None
    report: Path | None
    explain: tuple[str, ...]
    dashboard: bool
    #: What was typed besides APP, the job's id and its directory, as words of a command line.
    given: tuple[str, ...] = ()


def train_locally(options: TrainOptions, interrupts: Interrupts, quiet: bool = False) -> dict[str, Any]:
    """Train one job on this machine to its end; return its figures. One that has ended tells them again.

    Raises
    ------
    InputError
        One line that names what is wrong, before anything is started.
    Interrupted
        Where a signal asked to end, when the state is kept and every process ended.
    """
    job_id = options.job or f"train-{datetime.fromtimestamp(SystemClock().now_s(), UTC):%Y%m%d-%H%M%S}"
    job = LocalJob(job_id, _training(options), _tiers(options.nodes), options.threads)
    directory = (options.directory or Path("runs") / job_id).absolute()
    again = _again(job, directory, options)
    events = read_script_file(options.events, job.tiers, job.training.clocks)
    check_application(job.training, code=False)  # its file is looked at when it is shipped
    check_directory("--dir", directory, _NEEDED_BYTES)
    show = display(quiet)
    with run_directory(directory):
        blobs = open_store("--checkpoint", options.checkpoint or str(directory / "blobs"))
        books = RunFiles(blobs, job_id)
        wanted = _defining(job, options)
        begun = books.check(wanted)
        names = (*job.tiers, *(event.node for event in events))
        subjects = [subject(blobs, job_id, text, names, job.training.shards) for text in options.explain]

        def tell() -> None:
            for of in subjects:
                show.console.print(story_table(of.title, of.lines(blobs, job_id)))

        if begun and (result := books.trained()) is not None:
            show.say(f"job {job_id} was trained to its end before; these are its figures")
            figures = books.figures() or figures_of(job_id, blobs, result, [], books.applied_events())
        else:
            script = NodeEventScript(events, books.applied_events_of(events))
            training = LocalTraining(directory, blobs, job, books, script, options.dashboard)
            with _also_if_broken_off(tell, show), training, _pausing(training, books, job, again, interrupts):
                show.say(f"job {job_id}: nodes {options.nodes} on this machine; state in {directory}")
                for hint in hints(job, events):
                    show.say(hint)
                for note in training.prepare():
                    show.say(f"data: {note}")
                with books.beginning(wanted):
                    clock = training.start()
                if training.dashboard:
                    show.say(f"dashboard: {training.dashboard}")
                if clock:
                    show.say(f"goes on from clock {clock}")
                figures = _follow(training, job_id, show, interrupts)
            for event in script.to_come:
                show.say(
                    f"--events {options.events}: {event.at} never came, so {event.action} {event.node} was left out"
                )
    show.console.print(closing_table(figures))
    tell()
    if options.report is not None:
        write_training_report(figures, options.report)
        show.say(f"report: {options.report}")
    show.say(f"model: {figures['model']}")
    if hint := loss_hint(job.training, figures["losses"] or []):
        show.say(f"hint: {hint}")
    return figures


def _follow(
    training: LocalTraining, job_id: str, show: Display[TrainingMoment], interrupts: Interrupts
) -> dict[str, Any]:
    """Show the training and carry its script out until it is over; return its figures."""
    last = reason = ""
    try:
        while not training.ended(status := training.look()):
            if status["reason"] != reason and status["reason"].startswith(NOT_SAVED):
                show.say(status["reason"])  # it is tried for more than a minute, in which nothing else is to be seen
            reason = status["reason"]
            for last in training.carry_out(status):
                show.say(last)
            show.show(TrainingMoment(job_id, status, last), SystemClock().now_s())
            training.wait()
    finally:
        show.close()
    interrupts.hold()
    return training.finish(status)


@contextmanager
def _also_if_broken_off(tell: Callable[[], None], show: Display[TrainingMoment]) -> Iterator[None]:
    """Tell the stories also of a training that fails or is broken off: that is when somebody wants to know."""
    try:
        yield
    except InputError:
        raise  # nothing was begun
    except (ProteusError, Interrupted):
        try:
            tell()
        except ProteusError as error:
            show.say(f"the story could not be read: {error}")
        raise


@contextmanager
def _pausing(
    training: LocalTraining, books: RunFiles, job: LocalJob, again: str, interrupts: Interrupts
) -> Iterator[None]:
    """Whatever ends the context before its time, keep the state, end all processes, and say how to go on."""
    try:
        yield
    except InputError:
        raise
    except (ProteusError, Interrupted) as error:
        interrupts.hold()
        outcome = f"{_outcome(training, books, job)}: {again}"
        if isinstance(error, Interrupted):
            error.outcome = outcome
            raise
        kind = JobFailed if isinstance(error, JobFailed) else ProteusError
        raise kind(f"{error}; {outcome}") from error


def _outcome(training: LocalTraining, books: RunFiles, job: LocalJob) -> str:
    """Keep the state; return where the job stands, and what can be done next."""
    try:
        clock = training.keep()
        if books.trained() is not None:
            return f"job {job.job_id} is trained; to see its figures"
    except ProteusError as error:
        return f"job {job.job_id}: how far it came could not be read ({error}); to go on"
    of = "" if job.training.clocks is None else f" of {job.training.clocks}"
    return f"job {job.job_id} is at clock {clock}{of}; to go on"


def _again(job: LocalJob, directory: Path, options: TrainOptions) -> str:
    """Return the command that goes on with the job, ready to be pasted into a shell."""
    where = ["--job", job.job_id, "--dir", str(directory)]
    return shlex.join(["proteus", "train", options.app, *where, *options.given])


def _training(options: TrainOptions) -> Training:
    """Return what is to be trained; `InputError` names the option that cannot be."""
    chosen = application("APP", options.app, options.code, options.params)
    data = options.data or default_data(chosen.app)
    clocks = CLOCKS if options.clocks is None and options.seconds is None else options.clocks
    try:
        return Training(
            app=chosen.app,
            code=chosen.code,
            app_params={**default_params(chosen.app, data, options.seed), **chosen.params},
            data=absolute_data(data),
            partitions=options.partitions,
            shards=options.shards,
            staleness=options.staleness,
            stage=_STAGES[options.stage],
            stage_2_above=_ratios(options.stage_above)[0],
            stage_3_above=_ratios(options.stage_above)[1],
            clocks=clocks,
            evaluate_every=_evaluate_every(options.evaluate_every, clocks),
            hours=None if options.seconds is None else options.seconds / HOUR_S,
            checkpoint_minutes=options.checkpoint_every / MINUTE_S,
            seed=options.seed,
        )
    except ValidationError as error:
        raise InputError(f"{first_fault(error, _option)}; mend the option") from None


def _option(place: str) -> str:
    return "--" + place.replace("app_params", "param")


def _evaluate_every(asked: int | None, clocks: int | None) -> int | None:
    """Return how many clocks are between two evaluations; about ten in all, unless told otherwise.

    A job that ends by time alone has no number of clocks that ten could be a part of: it is evaluated when asked for.
    """
    if asked is None:
        return None if clocks is None else max(1, clocks // 10)
    return asked or None


def _tiers(text: str) -> dict[str, str]:
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


def _defining(job: LocalJob, options: TrainOptions) -> dict[str, Any]:
    """Return what must be the same for a job to go on, by option; nodes, threads and checkpoints may differ."""
    training = job.training
    return {
        "APP": training.app,
        "--data": training.data,
        "--nodes r=": job.n_reliable,
        "--staleness": training.staleness,
        "--clocks": training.clocks,
        "--seconds": options.seconds,
        "--partitions": training.partitions,
        "--shards": training.shards,
        "--seed": training.seed,
        **{f"--param {name}": value for name, value in training.app_params.items()},
    }
