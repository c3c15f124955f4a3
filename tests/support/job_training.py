"""The controller of the job of a `JobWorld`: it trains on the machine of the reliable tier, as market time passes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from proteus_spot.bidding.market.model import InstanceFact
from proteus_spot.infra.nodes.controller_client import ControllerUnreachable
from proteus_spot.infra.storage.job_paths import JobPaths
from proteus_spot.tasks.market.purchases.order_chains import CONTROLLER_ORDER, purchase

if TYPE_CHECKING:
    from tests.support.job_world import JobWorld

#: Seconds of a clock.
CLOCK_S = 120


class Training:
    """The controller of a job: it runs on the machine of the reliable tier that was bought for it.

    It trains a clock every `CLOCK_S` while its machine lives, saves a checkpoint every fifth, and its model at the end.
    """

    def __init__(self, world: JobWorld, clocks: int) -> None:
        self.world = world
        self.job_id = world.job_id
        self.clocks = clocks
        self.machine = ""
        self.state = ""  # of the job that was started on this machine; none yet
        self.clock = 0.0
        self.saved = 0
        self.reason = ""
        self.drained: set[str] = set()
        self.stands_still = False
        #: True speed of a vCPU, by type, where it is not 1; with it, clocks take the longer the slower machines are.
        self.speeds: dict[str, float] = {}
        #: {machine: (tasks, examples, kernel seconds)}, as a controller counts them.
        self.done: dict[str, tuple[int, float, float]] = {}
        #: Whether three machines train a clock in `CLOCK_S`, fewer ones in proportion; else any number does.
        self.scales = False

    def serving(self) -> str | None:
        """The machine on which a controller answers; it starts again on another one."""
        for fact in self.world.living():
            if purchase(self.job_id, self.order_of(fact)) == CONTROLLER_ORDER and self.world.is_up(fact):
                if fact.instance_id != self.machine:
                    self.machine, self.state, self.clock = fact.instance_id, "", float(self.saved)
                return self.machine
        return None

    def order_of(self, fact: InstanceFact) -> str:
        """The order that a machine is there for, as it knows it."""
        return fact.tags.get("proteus:order", "")

    def work(self, seconds: float) -> None:
        """Train for some seconds."""
        if self.serving() is None or self.state != "running" or self.stands_still:
            return
        self.clock = min(self.clock + seconds / self.clock_s(), float(self.clocks))
        for fact in filter(self.world.is_up, self.world.living()):
            tasks, examples, kernel_s = self.done.get(fact.instance_id, (0, 0.0, 0.0))
            each_s = 1.0 / self.speed(fact)  # of a task of a hundred examples, one a second
            done = (tasks + int(seconds), examples + 100.0 * int(seconds), kernel_s + each_s * int(seconds))
            self.done[fact.instance_id] = done
        self.saved = max(self.saved, int(self.clock) // 5 * 5)
        if self.clock >= self.clocks:
            self.end("finished")

    def clock_s(self) -> float:
        """Seconds that a clock takes on the machines of now."""
        machines = sum(map(self.world.is_up, self.world.living()))
        if self.speeds:
            working = sum(self.speed(fact) for fact in self.world.living() if self.world.is_up(fact))
            return CLOCK_S * 3 / max(working, 1.0)
        return CLOCK_S * 3 / max(machines, 1) if self.scales else float(CLOCK_S)

    def speed(self, fact: InstanceFact) -> float:
        """The true speed of a vCPU of a machine."""
        return self.speeds.get(fact.market.instance_type, 1.0)

    def end(self, state: str, reason: str = "") -> None:
        """Save the model and the result."""
        self.state, self.reason = state, reason
        self.saved = int(self.clock)
        result = {"clocks": int(self.clock), "stopped": reason or None, "lost_micro_tasks": 0}
        with self.world.boundary.outside():
            blobs = self.world.blobs
            blobs.write_set(JobPaths(self.job_id).model, {"w.npz": b"model"}, result)

    def status(self, since_clock: int = 0) -> dict[str, Any]:
        nodes = [
            {
                "name": fact.instance_id,
                "state": "drained" if fact.instance_id in self.drained else "ready",
                "gone": False,
            }
            for fact in self.world.living()
            if self.world.is_up(fact)
        ]
        return {
            "job_id": self.job_id if self.state else None,
            "state": self.state or "starting",
            "reason": self.reason,
            "clock": int(self.clock),
            "losses": [[int(self.clock), 1.0]] if self.clock >= 1 else [],
            "stage": 1,
            "nodes": nodes,
            "work": {name: list(done) for name, done in self.done.items()} if self.speeds else {},
            "notices": [],
            "repeated_micro_tasks": 0,
            "seconds_per_clock": self.clock_s(),
            "elapsed_s": 0.0,
            "result": {"clocks": int(self.clock), "stopped": self.reason or None} if self.reason else None,
        }

    # What flows call

    def client(self, address: str, timeout_s: float = 10.0) -> Training:
        """Return the client of the controller at an address, which is its machine."""
        if self.serving() != address.removeprefix("tcp://"):
            return _Silent()  # type: ignore[return-value]
        return self

    def find(self, blob_url: str, job_id: str, deadline_s: float, is_ours: Any = None) -> str:
        if self.serving() is None:
            self.world.clock.wait_until(self.world.clock.now_s() + deadline_s)
        if (machine := self.serving()) is None:
            raise ControllerUnreachable(f"job {job_id}: no controller was met")
        return f"tcp://{machine}"

    def start(self, job: dict[str, Any], say: object = None, wait_s: float | None = None) -> dict[str, Any]:
        self.state = self.state or "running"
        return self.status()

    def stop(self, reason: str) -> dict[str, Any]:
        if self.state == "running":
            self.end("stopped", reason)
        return self.status()

    def traffic(self) -> dict[str, Any]:
        """Every machine has exchanged as much with the controller's as clocks were trained, in megabytes."""
        links = [[self.machine, fact.instance_id, int(self.clock) * 10**6] for fact in self.world.living()]
        return {"links": links, "model_bytes": 1000}

    def checkpoint(self) -> dict[str, Any]:
        self.saved = int(self.clock)
        return {"clock": self.saved, "error": ""}

    def drain(self, nodes: list[str], deadline_s: float) -> dict[str, Any]:
        self.drained.update(nodes)
        return {"draining": list(nodes), "refused": []}


class _Silent:
    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            raise ControllerUnreachable("no answer")

        return call
