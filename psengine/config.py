"""Configuration of the engine: jobs, tables, tiers of nodes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from operator import index
from typing import Any, Literal

import numpy as np

Stage = Literal[1, 2, 3]
Tier = Literal["reliable", "transient"]

#: Pattern of a job's id. A job that buys machines may be restricted to fewer characters, never to others.
JOB_ID_PATTERN = r"[a-z0-9][a-z0-9-]{0,62}"
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,2})?"


#: Fields of a job that are 1 at least where they are set.
_POSITIVE = ("n_partitions", "n_shards", "n_reliable", "max_partitions_per_node", "clocks", "passes", "servers")


class JobError(ValueError):
    """An invalid job; the message is one line that names the field and the remedy."""


@dataclass(frozen=True)
class Until:
    """When a job has converged: it ends with the first clock at which this holds.

    Attributes
    ----------
    loss : float or None
        The mean training loss of a clock is at most this.
    no_improvement : int or None
        None of this number of clocks has a lower loss than all before them.
    metric : str
        Name of a figure of the application's `evaluate` that is `bound` at least (`at_least`) or at most, on the
        held-out data; "": none. The job ends a few clocks after it was evaluated.
    """

    loss: float | None = None
    no_improvement: int | None = None
    metric: str = ""
    at_least: bool = False
    bound: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Until:
        """Return the rule of ``loss=0.1``, ``no-improvement=5``, ``accuracy>=0.95`` or ``rmse<=0.8``; never, if empty.

        Raises
        ------
        JobError
            If it is none of these.
        """
        name, _, value = text.partition("=")
        if not text:
            return cls()
        if metric := re.fullmatch(rf"([A-Za-z_]\w{{0,63}})([<>]=)({_NUMBER})", text):
            return cls(metric=metric[1], at_least=metric[2] == ">=", bound=float(metric[3]))
        if name == "loss" and re.fullmatch(_NUMBER, value):
            return cls(loss=float(value))
        if name == "no-improvement" and re.fullmatch(r"0*[1-9]\d{0,8}", value):
            return cls(no_improvement=int(value))
        raise JobError(
            f"{text!r} is not a rule: want loss=NUMBER, no-improvement=CLOCKS with at least 1 clock, or a bound on a "
            "figure of the evaluation, as in accuracy>=0.95 or rmse<=0.8"
        )


@dataclass(frozen=True)
class Add:
    """Update rule: the table plus the summed updates."""


@dataclass(frozen=True)
class Sgd:
    """Update rule: gradient descent. The updates are gradients; the table minus `step` times their sum."""

    step: float

    def __post_init__(self) -> None:
        _check_range("Sgd", "step", self.step, 0.0, math.inf)


@dataclass(frozen=True)
class Momentum:
    """Update rule: gradient descent with momentum.

    The velocity becomes `momentum` times itself plus the summed gradients, and the table loses `step` times it.
    """

    step: float
    momentum: float = 0.9

    def __post_init__(self) -> None:
        _check_range("Momentum", "step", self.step, 0.0, math.inf)
        _check_range("Momentum", "momentum", self.momentum, 0.0, 1.0)


@dataclass(frozen=True)
class Nesterov:
    """Update rule: the summed changes, with Nesterov momentum; the outer step of DiLoCo.

    The updates are changes of the table, as of `Add`. With g their sum, negated, the velocity becomes `momentum` times
    itself plus g, and the table loses `lr` times (g + `momentum` times the velocity), as by `torch.optim.SGD` with
    `nesterov=True`. ``Nesterov(1, 0)`` adds the sum.

    Attributes
    ----------
    notes : str
        Name of a table with as many rows and two columns of floats; empty: none. Its updates of the same clock, if
        there are some, say in each row how many partitions are missing in the sum, which becomes as if they had added
        the mean of the others; and, by a number above 0, that it is added as it is, by no rule.

    Source: Douillard et al., DiLoCo (arXiv 2311.08105), Algorithm 1.
    Differs: the notes.
    """

    lr: float
    momentum: float
    notes: str = ""

    def __post_init__(self) -> None:
        _check_range("Nesterov", "lr", self.lr, 0.0, math.inf)
        _check_range("Nesterov", "momentum", self.momentum, 0.0, 1.0)


@dataclass(frozen=True)
class Adam:
    """Update rule: Adam, on the summed gradients.

    Source: Kingma and Ba (ICLR 2015), Algorithm 1.
    """

    step: float = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        _check_range("Adam", "step", self.step, 0.0, math.inf)
        _check_range("Adam", "beta1", self.beta1, 0.0, 1.0)
        _check_range("Adam", "beta2", self.beta2, 0.0, 1.0)
        _check_range("Adam", "epsilon", self.epsilon, 0.0, math.inf)


@dataclass(frozen=True)
class Replace:
    """Update rule: the summed updates take the place of the table; rows that they lack become 0.

    Attributes
    ----------
    keeps_sums : bool
        Whether the servers keep the sums that nodes have sent, until others take the place of the table: the sum of
        some partitions' updates can then be read (`Parameters.kept_sum`). They are not replicated.
    """

    keeps_sums: bool = False


#: What a server does with the sum of a clock's updates of a table, once, when the clock is committed.
UpdateRule = Add | Sgd | Momentum | Nesterov | Adam | Replace


def _check_range(rule: str, name: str, value: float, low: float, end: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value < end:
        upper = f" and below {end:g}" if end < math.inf else ""
        raise JobError(f"{rule}: {name} is {value!r}; want a number from {low:g} on{upper}")


@dataclass(frozen=True)
class TableSpec:
    """A named table of rows, the unit of Litz's and AgileML's storage.

    `dtype` is a NumPy name; rows are contiguous in memory. `own`: the table is partition-local, each row is read and
    written by the tasks of one partition only. `rule`: how the updates of a
    clock change the table; all but `Add` need a table of floats that is not partition-local.
    """

    name: str
    n_rows: int
    n_cols: int
    dtype: str = "float32"
    own: bool = False
    rule: UpdateRule = Add()

    def __post_init__(self) -> None:
        """Raise `JobError` if the engine cannot hold the table, or it cannot have its rule."""
        if not isinstance(self.name, str) or not self.name:
            raise JobError(f"a table has the name {self.name!r}: want a text")
        for field_name in ("n_rows", "n_cols"):
            try:
                size = index(getattr(self, field_name))
            except TypeError:
                kind = type(getattr(self, field_name)).__name__
                raise JobError(f"table {self.name!r}: {field_name} is a {kind}: want a whole number") from None
            object.__setattr__(self, field_name, size)
        if self.n_rows < 0 or self.n_cols < 0:
            raise JobError(f"table {self.name!r} is {self.n_rows} x {self.n_cols}; want at least 1 x 1")
        try:
            kind, name = np.dtype(self.dtype).kind, np.dtype(self.dtype).name
        except TypeError:
            kind, name = "", ""
        if kind not in ("f", "i", "u"):
            raise JobError(f"table {self.name!r} is of {self.dtype}; want a type of numbers, as in float32")
        object.__setattr__(self, "dtype", name)
        if isinstance(self.rule, Add):
            return
        rule = type(self.rule).__name__
        if not isinstance(self.rule, Sgd | Momentum | Nesterov | Adam | Replace):
            raise JobError(
                f"table {self.name!r}: rule is {self.rule!r}; "
                "want Add(), Sgd(), Momentum(), Nesterov(), Adam() or Replace()"
            )
        if self.own:
            raise JobError(f"table {self.name!r}: rule {rule} does not go with own=True; leave out one of them")
        if self.dtype not in ("float32", "float64"):
            raise JobError(f"table {self.name!r}: rule {rule} needs dtype float32 or float64, not {self.dtype}")


@dataclass(frozen=True)
class JobConfig:
    """Configuration of a training job. Two runs of one config under staleness 0 end in the same bits.

    Attributes
    ----------
    app : str
        Name of a built-in application, or `module:Class`.
    app_params : mapping
        Keyword arguments of the application; JSON-able.
    n_partitions : int
        Number of partitions of the input, the files `part-00000.npz`, … under `data_url`; one task per clock
        each.
    n_shards : int
        Number of shards of the parameters, fixed for the life of the job (half of the maximum number of its nodes).
    staleness : int
        SSP bound in clocks; 0 is BSP.
    clocks : int or None
        Clock target; None: until `max_seconds` or until stopped.
    passes : int or None
        Number of passes over the data, as the driver counts them, that end the job; None: no such end.
    max_seconds : float or None
        Real seconds from the first dispatch after which no new clock is begun.
    max_partitions_per_node : int or None
        Partitions that a node may own at most; the others have no owner until there are nodes for them. None: any
        number.
    n_reliable : int
        Number of reliable nodes to wait for before the shards are opened on them.
    start_patience_s : float
        Maximum seconds that the start waits for joined nodes that still load; then it begins with the ready ones.
    checkpoint_s : float or None
        Real seconds between two checkpoints of the committed state; None: only on request.
    stage : 1, 2, 3 or None
        AgileML's stage, fixed; None: by the ratio of transient to reliable nodes.
    stage_2_above, stage_3_above : float
        Ratios above which stages 2 and 3 hold.
    servers : int or None
        Number of transient nodes that serve in stages 2 and 3; None: half of them.
    evaluate_every : int or None
        Clocks between two evaluations on the held-out data; None: only the final model is evaluated, or every clock
        if `until` is a bound on a figure of the evaluation.
    scale_in : bool or None
        Whether counts are kept in a sparse form, servers merge and nodes are offered for release as the memory falls;
        None: where the application says that its memory falls.
    nan : {"fail", "allow"}
        What a number means that is not finite, in initial values, updates, losses and tables: the job fails, or goes
        on.
    until : str
        When the job has converged, which ends it before its clocks or seconds: see `Until.parse`; empty: never.
    code_sha256 : str
        Digest of the application's file, which every process must have; empty: the application is installed.
    """

    job_id: str
    app: str = "mlr"
    app_params: Mapping[str, Any] = field(default_factory=dict)
    data_url: str = ""
    n_partitions: int = 8
    n_shards: int = 2
    staleness: int = 0
    clocks: int | None = None
    max_seconds: float | None = None
    seed: int = 0
    n_reliable: int = 1
    start_patience_s: float = 10.0
    checkpoint_s: float | None = None
    stage: Stage | None = None
    stage_2_above: float = 1.0
    stage_3_above: float = 15.0
    evaluate_every: int | None = None
    servers: int | None = None
    code_sha256: str = ""
    until: str = ""
    max_partitions_per_node: int | None = None
    passes: int | None = None
    scale_in: bool | None = None
    nan: Literal["fail", "allow"] = "fail"

    @property
    def finite(self) -> bool:
        """Whether all numbers have to be finite."""
        return self.nan == "fail"

    @property
    def stop_rule(self) -> Until:
        """When the job has converged."""
        return Until.parse(self.until)

    @property
    def clocks_to_evaluate(self) -> int | None:
        """Clocks between two evaluations while it trains; None: there are none."""
        return self.evaluate_every or (1 if self.stop_rule.metric else None)

    def validate(self) -> None:
        """Raise `JobError` at the first invalid field."""
        if not re.fullmatch(JOB_ID_PATTERN, self.job_id):
            raise JobError(f"job_id {self.job_id!r}: use lower-case letters, digits and '-', at most 63")
        for name, low in (("staleness", 0), ("evaluate_every", 1), *((name, 1) for name in _POSITIVE)):
            if (value := getattr(self, name)) is not None and value < low:
                raise JobError(f"{name} is {value}: it must be at least {low}")
        for name in ("max_seconds", "checkpoint_s"):
            if (value := getattr(self, name)) is not None and value <= 0:
                raise JobError(f"{name} is {value}: it must be above 0")
        if self.clocks is None and self.max_seconds is None and self.passes is None:
            raise JobError("clocks, passes and max_seconds are all unset: give the job one of them to end by")
        if self.stage not in (None, 1, 2, 3):
            raise JobError(f"stage is {self.stage}: it must be 1, 2, 3, or none to go by the nodes")
        if self.nan not in ("fail", "allow"):
            raise JobError(f"nan is {self.nan!r}: it must be fail or allow")
        if not 0 <= self.stage_2_above <= self.stage_3_above:
            raise JobError(
                f"stage_2_above is {self.stage_2_above} and stage_3_above {self.stage_3_above}: "
                "want ratios, the second no less than the first"
            )
        try:
            Until.parse(self.until)
        except JobError as error:
            raise JobError(f"until {error}") from None
        if not re.fullmatch("([0-9a-f]{64})?", self.code_sha256):
            raise JobError(f"code_sha256 {self.code_sha256!r}: want 64 hexadecimal digits, or nothing")

    def code_misfit(self, code_sha256: str) -> str:
        """Return why a process whose code has this digest cannot work for the job; empty if it can."""
        if code_sha256 == self.code_sha256:
            return ""
        has, wants = (digest[:12] or "no code" for digest in (code_sha256, self.code_sha256))
        return f"has {has}, and the job wants {wants}: its code is another"

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dict; `from_dict` inverts it."""
        return asdict(self) | {"app_params": dict(self.app_params)}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> JobConfig:
        """Return the config that `to_dict` wrote; an unknown field raises `JobError`."""
        unknown = sorted(set(record) - set(cls.__dataclass_fields__))
        if unknown:
            raise JobError(f"unknown field {unknown[0]!r}: known are {', '.join(cls.__dataclass_fields__)}")
        try:
            config = cls(**record)
            config.validate()
        except TypeError as error:
            raise JobError(f"the job cannot be read: {error}") from error
        return config
