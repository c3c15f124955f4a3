"""The process that runs a user's training function: `python -m proteus_spot.infra.trials.process FOLDER IN OUT PARENT`.

It is started by `infra.trials.supervisor`, reads commands from file descriptor IN, writes messages to OUT, and stores
states in folders under FOLDER. It ends with its supervisor: the kernel kills it.
"""

import contextlib
import ctypes
import faulthandler
import importlib
import json
import os
import select
import signal
import sys
import threading
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proteus_spot.infra.clock import SystemClock
from proteus_spot.infra.errors import ProteusError
from proteus_spot.infra.trials.messages import Command, Message, StepDurations
from proteus_spot.infra.trials.saved_states import pack_state
from proteus_spot.infra.trials.trial import Trial
from proteus_spot.infra.trials.trial_documents import TrialSetting, finite_or_none, one_line
from proteus_spot.infra.trials.trial_errors import TrialError

#: Share of the time that saving on the machine may take, after some real seconds that it always has; a state is not
#: saved at steps that would exceed it.
_SAVING, _FREE_S = 0.1, 1.0
#: Real seconds between two messages that say nothing but that a step begins.
_SILENT_S = 0.5
_PR_SET_PDEATHSIG = 1
#: The kernel's choice when memory runs out: this process rather than its supervisor.
_OOM_SCORE = "600"


@dataclass(frozen=True, slots=True)
class Start:
    """What the supervisor leaves for the process, in ``start.json``.

    Attributes
    ----------
    setting : the trial.
    code : folder of the user's code, first on `sys.path`; None without.
    data : path of the data file, or of the folder of prepared data; None without.
    restored_step, restored : step and folder of the state to begin with; 0 and None without.
    until_step : step after which it ends.
    shows_traceback : whether a failure of the function prints its traceback.
    """

    setting: TrialSetting
    code: str | None
    data: str | None
    restored_step: int
    restored: str | None
    until_step: int
    shows_traceback: bool = True

    def to_json(self) -> dict[str, Any]:
        """Return the document."""
        return {name: getattr(self, name) for name in self.__slots__} | {"setting": self.setting.to_json()}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "Start":
        """Return what `to_json` wrote."""
        return cls(**{**body, "setting": TrialSetting.from_json(body["setting"])})


class PipedHost:
    """Surrounds a trial whose supervisor is another process.

    Parameters
    ----------
    start : what is trained.
    folder : receives the states.
    commands, messages : file descriptors.
    """

    def __init__(self, start: Start, folder: Path, commands: int, messages: int) -> None:
        self._start = start
        self._folder = folder
        self._in, self._out = commands, messages
        self._buffer = b""
        self._command = Command(start.until_step)
        self._clock = SystemClock()
        self._times = StepDurations()
        self._began_s = self._clock.now_s()
        self._step = 0
        self._step_began_s: float | None = None
        self._sent_s = 0.0
        self._saves = 0
        self._save_s = 0.0
        self._last_saved: tuple[int, Path] | None = None
        #: Step and model of the last `save` that was left out.
        self._left_out: tuple[int, Any] | None = None
        self._has_extra_step = False
        self._sending = threading.Lock()
        self.reports = 0
        self.ends_early = False
        self.has_asked = False

    # -- what a trial asks of its host

    def next_step(self, done: int) -> int | None:
        """Return the next step, None after the last one or at a stop."""
        self._end_step()
        self.has_asked = True
        self._step = done
        self._read_commands()
        if done >= self._start.setting.max_trial_steps:
            return None
        if done >= self._command.until_step or (self._command.stop and not self._needs_extra_step(done)):
            self.ends_early = True
            return None
        self._step = done + 1
        now_s = self._step_began_s = self._clock.now_s()
        if now_s - self._sent_s >= _SILENT_S:
            self.send(Message("step", self._step, times=self._times))
        return self._step

    def record(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send the metric of a step."""
        name = self._start.setting.metric
        if name not in metrics:
            raise TrialError(
                f"report: step {step} has no {name}, the metric of the sweep; it has {', '.join(sorted(metrics))}"
            )
        self.reports += 1
        self.send(Message("report", step, finite_or_none(metrics[name]), times=self._times))

    def save_state(self, step: int, model: Any) -> None:
        """Store the state after a step, unless saving has taken too much of the time and the state is not needed."""
        self._read_commands()
        is_needed = self._command.stop or step >= min(self._command.until_step, self._start.setting.max_trial_steps)
        now_s = self._clock.now_s()
        if not is_needed and self._save_s > _FREE_S + _SAVING * max(now_s - self._began_s, 0.0):
            self._left_out = step, model
            return
        self._store(step, model)

    def last_saved(self) -> tuple[int, Path] | None:
        """Return the state saved last, at first the one that the supervisor fetched."""
        if self._last_saved is not None:
            return self._last_saved
        if self._start.restored is None:
            return None
        return self._start.restored_step, Path(self._start.restored)

    # -- the end

    def finish(self) -> None:
        """Send how the training ended, after its last state.

        Raises
        ------
        TrialError
            If the function has not trained, or never reported.
        """
        self._end_step()
        metric = self._start.setting.metric
        if not self.has_asked:
            raise TrialError("the function returned without a step; loop over trial.steps()")
        if not self.reports and self._times.count:
            raise TrialError(
                f"the function returned without a report; call trial.report(step, {metric}=...) in the loop"
            )
        if self._left_out is not None and self._left_out[0] == self._step:
            self._store(*self._left_out)
        how = "paused" if self.ends_early and self._step < self._start.setting.max_trial_steps else "finished"
        self.send(Message("ended", self._step, how=how, times=self._times))  # type: ignore[arg-type]

    def send(self, message: Message) -> None:
        """Send a message; waits while the supervisor is busy."""
        data = memoryview(message.to_line())
        with self._sending:
            while data:
                data = data[os.write(self._out, data) :]
        self._sent_s = self._clock.now_s()

    def _end_step(self) -> None:
        if self._step_began_s is not None:
            self._times = self._times.add(self._clock.now_s() - self._step_began_s)
            self._step_began_s = None

    def _needs_extra_step(self, done: int) -> bool:
        """Return whether one more step is trained, since the state after this one was not saved."""
        if self._left_out is None or self._left_out[0] != done or self._has_extra_step:
            return False
        self._has_extra_step = True
        return True

    def _store(self, step: int, model: Any) -> None:
        began_s = self._clock.now_s()
        name = f"{step:09d}-{self._saves:06d}"
        size = pack_state(model, self._folder / name)
        self._saves += 1
        self._left_out = None
        self._last_saved = step, self._folder / name
        seconds = max(0.0, self._clock.now_s() - began_s)
        self._save_s += seconds
        if self._step_began_s is not None:
            self._step_began_s += seconds  # a step's time is that of its training
        self.send(Message("saved", step, folder=name, size=size, seconds=seconds, times=self._times))

    def _read_commands(self) -> None:
        while select.select([self._in], [], [], 0)[0]:
            data = os.read(self._in, 65536)
            if not data:
                return
            *lines, self._buffer = (self._buffer + data).split(b"\n")
            for line in lines:
                self._command = Command.from_line(line)


def failure(error: BaseException, code: str | None = None) -> str:
    """Return why a function failed, on one line: the error, and the last line of the user's code before it."""
    if isinstance(error, ProteusError):
        text = str(error)
    elif isinstance(error, SystemExit):
        text = f"the function called exit({error.code if error.code is not None else ''})"
    else:
        text = "".join(traceback.format_exception_only(error)).strip()
    frames = list(traceback.extract_tb(error.__traceback__))
    users = [frame for frame in frames if code is not None and frame.filename.startswith(code)]
    if frames := users or [frame for frame in frames if not frame.filename.startswith((_OURS, "<frozen"))]:
        text += f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno}, in {frames[-1].name})"
    return one_line(text)


_OURS = str(Path(__file__).parent.parent)


def load_function(name: str) -> Any:
    """Return the training function of ``module:function``, or the one that trains an application of the engine.

    Raises
    ------
    TrialError
        If the module has no such function.
    """
    module, _, attribute = name.partition(":")
    if not attribute:
        from proteus_spot.infra.trials.engine_application import train_application

        return train_application(name)
    function = getattr(importlib.import_module(module), attribute, None)
    if not callable(function):
        raise TrialError(f"trial {name}: module {module} has no function {attribute}")
    return function


def run(start: Start, host: PipedHost) -> None:
    """Run the function of a trial to its end; every failure of it is sent."""
    setting = start.setting
    trial = Trial(
        setting.params, seed=setting.seed, data=start.data, max_trial_steps=setting.max_trial_steps, host=host
    )
    try:
        if start.code is not None:
            sys.path.insert(0, start.code)
        load_function(setting.trial)(trial)
        host.finish()
    except BaseException as error:  # noqa: BLE001 - also SystemExit: whatever it is, the function has failed
        if start.shows_traceback:
            traceback.print_exc()
        host.send(Message("failed", why=failure(error, start.code)))


def main(arguments: list[str]) -> int:
    """Train as `start.json` says; return the exit code."""
    folder, commands, messages, parent = Path(arguments[0]), int(arguments[1]), int(arguments[2]), int(arguments[3])
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before the signal was set
            return 1
        with contextlib.suppress(OSError):  # a container may forbid it; then the kernel chooses by size
            Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)
    for descriptor in (commands, messages):
        os.set_inheritable(descriptor, False)  # the function's own processes must not hold them open
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor decides when to end
    faulthandler.enable()
    start = Start.from_json(json.loads((folder / "start.json").read_text()))
    run(start, PipedHost(start, folder, commands, messages))
    sys.stdout.flush()
    # Threads of the function that are no daemons would keep the process from ending.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
