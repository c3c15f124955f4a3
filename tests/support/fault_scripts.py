"""Seeded scripts of what goes wrong in the simulated market while a job runs in it."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from proteus_spot.bidding.market.model import LaunchRequest
from proteus_spot.bidding.market.spot_market import MarketUnreachable
from proteus_spot.infra.simulated_ec2.faults import Fault, FaultKind
from proteus_spot.infra.simulated_ec2.rules.behaviour import HONEST, Ec2Behaviour
from tests.support.job_world import BEGIN_S, MARKETS, JobWorld

#: What may happen, each once or a few times in a script.
KINDS = (
    *("lag", "throttles", "server-errors", "lost-answers", "capacity", "marks", "kills", "reboots", "credentials"),
    *("dying-launches", "hardware", "notices", "other-owner", "stopped-by-hand"),
)


@dataclass(slots=True)
class FaultScript:
    """A script.

    Parameters
    ----------
    seed : of everything in it.
    kinds : what happens, of `KINDS`.
    behaviour : of the market.
    faults : of the market's calls, in seconds from the job's begin.
    events : what happens to machines, at seconds from the job's begin.
    """

    seed: int
    kinds: tuple[str, ...]
    behaviour: Ec2Behaviour = HONEST
    notice_copies: int = 1
    notice_delay_s: float = 5.0
    faults: list[Fault] = field(default_factory=list)
    events: list[tuple[int, Callable[[JobWorld], None]]] = field(default_factory=list)


def fault_script(seed: int, *, only: tuple[str, ...] = ()) -> FaultScript:
    """Return the script of a seed: two to five kinds of trouble, or `only` those."""
    random = np.random.default_rng(seed)
    chosen = only or tuple(str(kind) for kind in random.choice(KINDS, int(random.integers(2, 6)), replace=False))
    script = FaultScript(seed, chosen)
    for kind in chosen:
        _ADD[kind](script, random)
    return script


def _at(random: np.random.Generator) -> int:
    """A second of the job's first two hours."""
    return int(random.integers(0, 7200))


def _call(script: FaultScript, random: np.random.Generator, kind: FaultKind, most_s: int, **fields: object) -> None:
    begins_s = _at(random)
    ends_s = begins_s + int(random.integers(60, most_s))
    script.faults.append(Fault(kind, BEGIN_S + begins_s, BEGIN_S + ends_s, **fields))  # type: ignore[arg-type]


def _lag(script: FaultScript, random: np.random.Generator) -> None:
    most_s = int(random.integers(60, 300))
    script.behaviour = Ec2Behaviour((0, most_s), (0, most_s), 3600, 86_400)


def _throttles(script: FaultScript, random: np.random.Generator) -> None:
    for _ in range(int(random.integers(1, 4))):
        operation = str(random.choice(["launch", "describe", "terminate"]))
        _call(script, random, FaultKind.THROTTLE, 2400, operation=operation)


def _server_errors(script: FaultScript, random: np.random.Generator) -> None:
    for _ in range(int(random.integers(1, 4))):
        _call(script, random, FaultKind.UNAVAILABLE, 1800, times=int(random.integers(1, 20)))


def _lost_answers(script: FaultScript, random: np.random.Generator) -> None:
    for operation in ("launch", "terminate", "describe"):
        at_s, times = BEGIN_S + _at(random) // 2, int(random.integers(1, 5))
        script.faults.append(Fault(FaultKind.LOSE_ANSWER, at_s, operation=operation, times=times))
    script.faults.append(Fault(FaultKind.LOSE_ANSWER, operation="launch", times=int(random.integers(0, 4))))


def _capacity(script: FaultScript, random: np.random.Generator) -> None:
    for market in MARKETS:
        _call(script, random, FaultKind.CAPACITY, 3600, market=market)


def _credentials(script: FaultScript, random: np.random.Generator) -> None:
    code = str(random.choice(["RequestExpired", "ExpiredToken", "AuthFailure", "UnauthorizedOperation"]))
    _call(script, random, FaultKind.DENIED, 4800, code=code)


def _dying_launches(script: FaultScript, random: np.random.Generator) -> None:
    reasons = ["Server.InsufficientInstanceCapacity", "Client.VolumeLimitExceeded", "Client.InternalError"]
    fault = Fault(
        FaultKind.DIE,
        code=str(random.choice(reasons)),
        delay_s=float(random.integers(1, 120)),
        times=int(random.integers(1, 3)),
    )
    script.faults.append(fault)


def _spot(world: JobWorld, rank: int, fault: Fault) -> None:
    """Have `fault` happen to one living spot machine, if there is one."""
    names = [fact.instance_id for fact in world.living() if fact.bid_micros is not None]
    if names:
        kind, notice_s, spares = fault.kind, fault.notice_s, fault.spares
        name = names[rank % len(names)]
        world.market.add_fault(Fault(kind, instance_id=name, notice_s=notice_s, spares=spares))


def _marks(script: FaultScript, random: np.random.Generator) -> None:
    for _ in range(int(random.integers(1, 5))):
        notice_s, spares, rank = int(random.integers(0, 400)), bool(random.random() < 0.3), int(random.integers(0, 4))
        fault = Fault(FaultKind.MARK, instance_id="any", notice_s=notice_s, spares=spares)
        at_s, again = _at(random), bool(random.random() < 0.3)
        script.events.append((at_s, lambda world, rank=rank, fault=fault: _spot(world, rank, fault)))
        if again:
            script.events.append((at_s + 60, lambda world, rank=rank, fault=fault: _spot(world, rank, fault)))


def _kills(script: FaultScript, random: np.random.Generator) -> None:
    for _ in range(int(random.integers(1, 4))):
        rank, fault = int(random.integers(0, 4)), Fault(FaultKind.KILL, instance_id="any")
        script.events.append((_at(random), lambda world, rank=rank, fault=fault: _spot(world, rank, fault)))


def _reboots(script: FaultScript, random: np.random.Generator) -> None:
    """A rebooted machine runs no start script: its guard ends it."""
    for _ in range(int(random.integers(1, 3))):
        rank = int(random.integers(0, 4))

        def reboot(world: JobWorld, rank: int = rank) -> None:
            if living := world.living():
                world.market.shut_down(living[rank % len(living)].instance_id)

        script.events.append((_at(random), reboot))


def _reliable(world: JobWorld, kind: FaultKind) -> None:
    for fact in world.living():
        if fact.bid_micros is None and fact.instance_id not in world.others:
            world.market.add_fault(Fault(kind, instance_id=fact.instance_id))
            return


def _hardware(script: FaultScript, random: np.random.Generator) -> None:
    for _ in range(int(random.integers(1, 3))):
        script.events.append((_at(random), lambda world: _reliable(world, FaultKind.FAIL)))


def _stopped_by_hand(script: FaultScript, random: np.random.Generator) -> None:
    at_s = _at(random)
    script.events.append((at_s, lambda world: _reliable(world, FaultKind.STOP)))


def _notices(script: FaultScript, random: np.random.Generator) -> None:
    script.notice_copies = int(random.choice([0, 2, 3]))
    script.notice_delay_s = float(random.choice([5, 60, 200, 900]))


def _other_owner(script: FaultScript, random: np.random.Generator) -> None:
    """Another head node has a job of the same name in this account, with machines of every kind."""

    def buy(world: JobWorld) -> None:
        for number, bid in enumerate((None, 900_001)):
            tags = {
                "proteus:owner": "another",
                "proteus:job": world.job_id,
                "proteus:tier": "reliable" if bid is None else "transient",
                "proteus:order": f"{world.job_id}-{'reliable' if bid is None else 'buy'}-0",
            }
            request = LaunchRequest(f"another-{number}", MARKETS[1], 1, bid, "", tags)
            with suppress(MarketUnreachable):  # the same faults meet it; it does without
                world.others.update(fact.instance_id for fact in world.market.purchase(request))

    script.events.append((_at(random) // 4, buy))


_ADD: dict[str, Callable[[FaultScript, np.random.Generator], None]] = {
    "lag": _lag,
    "throttles": _throttles,
    "server-errors": _server_errors,
    "lost-answers": _lost_answers,
    "capacity": _capacity,
    "marks": _marks,
    "kills": _kills,
    "reboots": _reboots,
    "credentials": _credentials,
    "dying-launches": _dying_launches,
    "hardware": _hardware,
    "notices": _notices,
    "other-owner": _other_owner,
    "stopped-by-hand": _stopped_by_hand,
}
