"""Applications that return what is not allowed: the job fails with one line, and the controller answers."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import numpy as np
import pytest

from proteus_spot import Driver, Sgd, TableSpec, Task, Work
from proteus_spot.psengine.config import JobConfig
from proteus_spot.psengine.controller.state import ENDED
from proteus_spot.psengine.single_process import initial, train_alone
from proteus_spot.psengine.tables.allowed_values import WrongSum
from tests.support.lossy_network import Trouble
from tests.support.simulated_cluster import WiredCluster
from tests.support.simulated_jobs import run_job

PARTITIONS, CLOCKS, AT = 4, 5, 3
NODES = ("r1", "t1", "t2")


class Wrong:
    """It does one wrong thing, in clock 3 of partition 2."""

    def __init__(self, what: str = "", dtype: str = "int32", table: str = "int32") -> None:
        self.what, self.dtype, self.table = what, dtype, table

    def tables(self) -> Any:
        if self.what == "tables":
            return [1]
        return (
            TableSpec("n", 6, 1, self.table),
            TableSpec("w", 6, 1, "float32", rule=Sgd(1e38)),
            TableSpec("own", 4, 1, "float32", own=True),
        )

    def initial(self, table: TableSpec, rows: tuple[int, int], rng: np.random.Generator) -> Any:
        return np.zeros((rows[1] - rows[0] + (self.what == "initial"), 1))

    def prepare(self, arrays: Any, partition: int) -> int:
        return partition

    def rows(self, data: int, clock: int) -> dict[str, Any]:
        return {"own": slice(data, data + 1)}

    def run(self, data: int, params: Any, clock: int) -> Any:
        updates = {"n": np.full((6, 1), 100).astype(self.dtype), "own": np.ones((1, 1))}
        loss: Any = np.float32(1)
        examples: Any = np.int64(1)
        if (data, clock) == (2, AT) or (self.what == "last" and clock == CLOCKS):
            match self.what:
                case "nan":
                    updates["w"] = np.full((6, 1), np.nan)
                case "own":
                    updates["own"] = np.full((1, 1), np.inf)
                case "rule":
                    updates["w"] = np.full((6, 1), 10.0)
                case "sum" | "last":
                    updates["n"][5] = 2**31 - 1
                case "loss":
                    loss = np.ones(3)
                case "infinite":
                    loss = np.inf
                case "count":
                    examples = -1
        return Work(updates, loss, examples)

    def evaluate(self, params: Any, heldout: Any) -> Any:
        return {"a": np.ones(2)} if self.what == "evaluate" else {"n": params["n"].max()}


def trained(app: str, **params: Any) -> WiredCluster:
    cluster = WiredCluster(0, Trouble())
    nan = params.pop("nan", "fail")
    config = JobConfig(
        "job", f"{__name__}:{app}", params, n_partitions=PARTITIONS, n_shards=2, clocks=CLOCKS, n_reliable=1, nan=nan
    )
    run_job(cluster, config, NODES, limit_s=500.0)
    return cluster


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8"])
def test_updates_of_a_narrow_type_are_cast_before_any_sum(dtype: str) -> None:
    app = Wrong(dtype=dtype)
    alone = train_alone(app, range(PARTITIONS), initial(app, 0, 2), CLOCKS)["n"]  # type: ignore[arg-type]
    model = trained("Wrong", dtype=dtype).store.model
    assert model is not None
    want = PARTITIONS * CLOCKS * (1 if dtype == "bool" else 100)
    assert model["n"].ravel().tolist() == alone.ravel().tolist() == [want] * 6


PLACE = r"test_wrong_values\.py:\d+: run: "
FINITE = "want finite numbers, or `nan: allow` in the job"


@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("initial", r"initial: rows 0 to 2 of table 'n' are of shape \(4, 1\): want \(3, 1\)"),
        ("nan", rf"partition 2, clock 3, .*{PLACE}the update of table 'w' holds nan in row 0, column 0: {FINITE}"),
        ("own", rf"partition 2, clock 3, .*{PLACE}the update of table 'own' holds inf in row 2, column 0: {FINITE}"),
        ("rule", rf"table 'w', row 0, clock 3: the sum is -inf: {FINITE}"),
        ("sum", "table 'n', row 5.*: the sum does not fit int32"),
        ("last", "table 'n', row 5.*: the sum does not fit int32"),
        ("loss", rf"partition 2, clock 3, .*{PLACE}the loss is a ndarray of 3: want one number"),
        ("infinite", rf"partition 2, clock 3, .*{PLACE}the loss is inf: {FINITE}"),
        ("count", rf"partition 2, clock 3, .*{PLACE}the number of examples is -1: want a whole number"),
        ("evaluate", r"the model could not be saved: .*evaluate: 'a' is a ndarray of 2: want one number"),
    ],
)
def test_the_job_fails_with_the_line(what: str, says: str) -> None:
    cluster = trained("Wrong", what=what)
    assert cluster.store.model is None
    assert cluster.shell.controller.job.state == "failed"
    assert re.search(says, cluster.shell.controller.job.reason), cluster.shell.controller.job.reason


@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.parametrize("what", ["nan", "own", "rule", "infinite"])
def test_numbers_that_are_not_finite_may_be_allowed(what: str) -> None:
    cluster = trained("Wrong", what=what, nan="allow")
    assert cluster.shell.controller.job.state == "finished"
    assert cluster.store.result is not None
    json.dumps(cluster.store.result)


def test_wrong_tables_are_an_error_of_the_start() -> None:
    cluster = WiredCluster(0, Trouble())
    config = JobConfig("job", f"{__name__}:Wrong", {"what": "tables"}, n_partitions=2, n_shards=1, clocks=1)

    async def story() -> None:
        cluster.open()
        answer = await cluster.shell.start(config.to_dict())
        assert "tables: holds 1: want a TableSpec" in answer["error"]
        await cluster.close()

    asyncio.run(story())


def test_one_process_refuses_the_same_sum() -> None:
    app = Wrong("sum")
    with pytest.raises(WrongSum, match="table 'n', row 5, clock 3: the sum does not fit int32"):
        train_alone(app, range(PARTITIONS), initial(app, 0, 2), CLOCKS)  # type: ignore[arg-type]


class Alone:
    def run(self, args: Any, params: Any, rng: np.random.Generator) -> tuple[Any, float, int]:
        return None, 1.0, 1


class Says(Driver):
    """A driver whose `figures`, `remarks` or `clock` is wrong from group 3 on."""

    def __init__(self, what: str) -> None:
        self.what, self.group, self.n = what, 0, 0
        if what == "clock":
            self.clocks = None

    def start(self, to: Any, partitions: int, seed: int) -> None:
        self.n = partitions
        self._next(to)

    def _next(self, to: Any) -> None:
        self.group += 1
        for partition in range(self.n):
            to.dispatch(Task(np.int64(partition), np.int32(self.group)))  # type: ignore[arg-type]
        to.seal(np.int64(self.group), members=(np.int64(e) for e in range(self.n)))

    def committed(self, to: Any, group: int) -> None:
        self._next(to)
        if self.group == AT and self.what in ("group", "read"):
            to.finish(group + 0.5) if self.what == "group" else to.dispatch(Task(0, self.group, read="all"))  # type: ignore[arg-type]

    def figures(self) -> Any:
        return {"a": np.ones(2) if self.what == "figures" and self.group >= AT else np.float32(1)}

    def remarks(self) -> Any:
        return "all is well" if self.what == "remarks" and self.group >= AT else []

    def passes(self, group: int, examples: int) -> Any:
        return np.ones(2) if self.what == "passes" and self.group >= AT else np.float64(group)

    def __getattr__(self, name: str) -> Any:
        if name == "clock" and self.__dict__.get("what") == "clock":
            return "three" if self.group >= AT else self.group
        raise AttributeError(name)

    def snapshot(self) -> Any:
        return self.group, self.n

    def restore(self, state: Any) -> None:
        self.group, self.n = state


class Driven(Wrong):
    def executor(self, data: Any, partition: int, n_partitions: int) -> Any:
        return Alone()

    def driver(self) -> Any:
        return None if self.what == "driver" else Says(self.what)

    def tables(self) -> Any:
        return (TableSpec("n", 6, 1),)


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("figures", "the driver failed: .*figures: 'a' is a ndarray of 2: want one number"),
        ("remarks", "the driver failed: .*remarks: returns 'all is well': want a list of texts"),
        ("passes", "the driver failed: .*passes is a ndarray of 2: want one number"),
        ("clock", "the driver failed: .*clock is 'three': want a whole number"),
        ("group", "the driver failed: .*finish: the group is 2.5: want a whole number"),
        ("read", "the driver failed: .*dispatch: the read is 'all': want one of group, rows, parent"),
    ],
)
def test_a_driver_that_says_what_is_not_allowed_fails_the_job_and_the_status_answers(what: str, says: str) -> None:
    cluster = WiredCluster(0, Trouble())
    config = JobConfig(
        "job", f"{__name__}:Driven", {"what": what}, n_partitions=PARTITIONS, n_shards=2, clocks=9, n_reliable=1
    )
    statuses: list[dict[str, Any]] = []

    async def look(cluster: WiredCluster) -> None:
        while not statuses or statuses[-1]["state"] not in ENDED:
            statuses.append(await cluster.shell.status())
            await asyncio.sleep(0.1)

    run_job(cluster, config, NODES, look, limit_s=500.0)
    assert statuses[-1]["state"] == "failed"
    assert re.search(says, statuses[-1]["reason"]), statuses[-1]["reason"]
    json.dumps(statuses)
