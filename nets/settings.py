"""The settings of a net: attributes of the user's class, or parameters of the job."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from proteus_spot.nets.sampling import Calendar
from proteus_spot.nets.trainer import Trainer
from proteus_spot.psengine.apps.base import SIZES
from proteus_spot.psengine.config import Nesterov

#: Most steps that are warm by default: each is an exchange.
MOST_WARM = 200


class NetSettings:
    """The settings of a net, and what takes its local steps.

    Attributes
    ----------
    workers : int
        Logical workers (K): each has a partition of the data, whatever machines there are.
    local_steps : int
        Steps of the inner optimiser between two exchanges (H).
    warm_steps : int or None
        The first so many steps are exchanged one by one; None: see `calendar`.
    batch_size, accumulate : int
        Examples of a batch of a worker, and batches whose gradients a step adds up.
    outer : Nesterov or None
        What the servers do with the mean of the workers' changes; None: see `outer_rule`.
    moments : {"keep", "reset"}
        Whether a worker's inner optimiser goes on with its moments in the next clock, or begins anew.
    pushes : {"fp32", "bf16"}
        Whether a worker's change is rounded to bfloat16 before it is added to any other; sums are made in float32.
    nan : {"fail", "skip"}
        What a worker's loss, or change, means that is not finite: the job fails, or the servers take the mean of the
        other workers.
    keep : {"last", "best"}
        Which model is saved: the last one, or that of the lowest held-out loss among those that were evaluated.
    threads : int
        Threads of a task.
    job_seed, job_clocks, job_passes, n_examples, n_inputs, n_classes : number
        Seed and length of the job, and sizes of its training set, which the job fills in; 0 where there is none.
    """

    workers: int = 8
    local_steps: int = 50
    warm_steps: int | None = None
    batch_size: int = 32
    accumulate: int = 1
    outer: Nesterov | None = None
    moments: Literal["keep", "reset"] = "keep"
    pushes: Literal["fp32", "bf16"] = "fp32"
    nan: Literal["fail", "skip"] = "fail"
    keep: Literal["last", "best"] = "last"
    threads: int = 1
    job_seed: int = 0
    job_clocks: int = 0
    job_passes: float = 0.0
    n_examples: int = 0
    n_inputs: int = 0
    n_classes: int = 0

    #: Settings that are whole numbers, and the least of each.
    _WHOLE: ClassVar[tuple[tuple[str, int], ...]] = (
        ("workers", 1),
        ("local_steps", 1),
        ("batch_size", 1),
        ("accumulate", 1),
        ("threads", 1),
    )

    #: Settings that are one of a few words.
    _EITHER: ClassVar[tuple[tuple[str, tuple[str, ...]], ...]] = (
        ("moments", ("keep", "reset")),
        ("pushes", ("fp32", "bf16")),
        ("nan", ("fail", "skip")),
        ("keep", ("last", "best")),
    )

    #: Whether the tasks of a node run in processes of their own.
    in_processes: ClassVar[bool] = False

    def __init__(self, **params: Any) -> None:
        #: As the job has them.
        self.params = params
        for name, value in params.items():
            if name in SIZES:
                setattr(self, name, value)
            elif name.startswith("_") or not hasattr(type(self), name) or callable(getattr(type(self), name)):
                raise TypeError(f"{type(self).__name__} has no setting {name!r}; make it an attribute of the class")
            else:
                setattr(self, name, value)
        outer: Any = self.outer
        if isinstance(outer, dict):  # as a job's file has it
            self.outer = Nesterov(**outer)
        self.check_settings()

    def check_settings(self) -> None:
        """Raise ValueError, in one line, at the first setting that cannot be."""
        for name, least in self._WHOLE:
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise ValueError(f"{name} is {value!r}: want a whole number from {least}")
        if self.warm_steps is not None and (type(self.warm_steps) is not int or self.warm_steps < 0):
            raise ValueError(f"warm_steps is {self.warm_steps!r}: want a whole number from 0")
        if self.outer is not None and type(self.outer) is not Nesterov:
            raise ValueError(f"outer is {self.outer!r}: want Nesterov(lr, momentum)")
        for name, either in self._EITHER:
            if getattr(self, name) not in either:
                raise ValueError(f"{name} is {getattr(self, name)!r}: want {' or '.join(either)}")

    @property
    def outer_rule(self) -> Nesterov:
        """What the servers do with the mean of the workers' changes: by default, momentum helps after warm steps alone.

        Source: benchmarks/nets/defaults.json.
        """
        if self.outer is not None:
            return self.outer
        return Nesterov(1.0, 0.5 if self.calendar.warm_steps else 0.0)

    @property
    def has_notes(self) -> bool:
        """Whether workers may say how their changes are to be applied."""
        return self.calendar.warm_steps > 0 or self.nan == "skip"

    @property
    def examples_are_rows(self) -> bool:
        """Whether an example is a row of the data."""
        return True

    @property
    def examples_of_step(self) -> int:
        """Examples of a step of all workers."""
        return self.workers * self.batch_size * self.accumulate

    @property
    def calendar(self) -> Calendar:
        """Which steps belong to which group and clock.

        By default a fifth of the job's steps is warm, at most `MOST_WARM`; none where its length is not known.

        Source: benchmarks/nets/defaults.json.
        """
        if self.warm_steps is not None:
            return Calendar(self.local_steps, self.warm_steps)
        lengths = [self.job_clocks * self.local_steps]
        if self.examples_are_rows:
            lengths.append(int(self.job_passes * self.n_examples / self.examples_of_step))
        steps = min((length for length in lengths if length), default=0)
        return Calendar(self.local_steps, min(steps // 5, MOST_WARM) if self.local_steps > 1 else 0)

    def trainer(self) -> Trainer:
        """Return what takes the net's local steps."""
        raise NotImplementedError(f"{type(self).__name__} has no trainer; inherit from TorchNet")
