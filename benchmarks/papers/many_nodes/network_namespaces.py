"""Network namespaces on one machine, each behind a link of a given rate to one switch.

A namespace has one interface, ``eth0``; a veth pair joins it to a bridge. Both ends of the pair are shaped by a token
bucket, so that each direction has the link's rate. Needs root, `ip` and `tc`.

All names begin with ``pb`` and the id of the process that created them; leftovers of a killed process are removed by
the next one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path

#: Bytes of the bucket: the largest segment that the kernel creates; a smaller bucket would split segments.
_BURST = 65_536
#: Bytes of the queue: nothing is dropped. Queues are limited by the receivers' windows, which are small since the links
#: have no delay.
_QUEUE = 1 << 27
_WINDOW = 1 << 16
#: Minimum retransmission timeout: packets that wait for a slow link would be considered lost and sent again.
_LEAST_TIMEOUT = "4s"
_OURS = re.compile(r"pb(\d+)[bhn]\d*")
_NAMESPACES = Path("/run/netns")


@dataclass(frozen=True)
class NetworkPlan:
    """Names and addresses of `n` namespaces of process `pid`, whose links carry `rate` bytes per second each way.

    Every network is 10.x.y.0/24 with x from 200 on; of `n` there are at most 250.
    """

    pid: int
    n: int
    rate: int

    @property
    def bridge(self) -> str:
        """Name of the switch."""
        return f"pb{self.pid}b"

    @property
    def network(self) -> IPv4Network:
        """The network, which depends on the process, so that two concurrent benchmarks do not collide."""
        return IPv4Network(f"10.{200 + self.pid // 250 % 50}.{self.pid % 250}.0/24")

    @property
    def ours(self) -> str:
        """Address of the host in the network."""
        return f"{self.network[254]}"

    def address(self, i: int) -> str:
        """Address of namespace `i`."""
        return f"{self.network[i + 1]}"

    def namespace(self, i: int) -> str:
        """Name of namespace `i`."""
        return f"pb{self.pid}n{i}"

    def end(self, i: int) -> str:
        """Name of the host's end of its link."""
        return f"pb{self.pid}h{i}"

    def hardware(self, i: int) -> str:
        """Hardware address of namespace `i`."""
        return f"02:70:62:00:00:{i:02x}"

    def links(self) -> list[str]:
        """Return the lines for ``ip -batch`` that create switch, namespaces and links."""
        lines = [
            f"link add {self.bridge} type bridge",
            f"addr add {self.ours}/24 dev {self.bridge}",
            f"link set {self.bridge} up",
        ]
        for i in range(self.n):
            lines += [
                f"netns add {self.namespace(i)}",
                f"link add {self.end(i)} type veth peer name eth0 address {self.hardware(i)} netns {self.namespace(i)}",
                f"link set {self.end(i)} master {self.bridge} up",
            ]
        return lines

    def inside(self, i: int) -> list[str]:
        """Return the lines for ``ip -batch`` inside namespace `i`.

        All hardware addresses are set: the kernel limits the addresses that all namespaces may resolve to a thousand.
        """
        others = [
            f"neigh replace {self.address(k)} lladdr {self.hardware(k)} dev eth0 nud permanent"
            for k in range(self.n)
            if k != i
        ]
        return [
            "link set lo up",
            f"addr add {self.address(i)}/24 dev eth0",
            "link set eth0 up",
            f"route replace {self.network} dev eth0 src {self.address(i)} rto_min {_LEAST_TIMEOUT}",
            *others,
        ]

    def shapes(self, rate: int) -> list[str]:
        """Return the lines for ``tc -batch`` that set `rate` at the host's ends of the links."""
        return [shape(self.end(i), rate) for i in range(self.n)]


def shape(device: str, rate: int) -> str:
    """Return the line for ``tc`` that limits a device to sending `rate` bytes per second."""
    return f"qdisc replace dev {device} root tbf rate {8 * rate}bit burst {_BURST} limit {_QUEUE}"


class Network:
    """The created namespaces of a plan."""

    def __init__(self, plan: NetworkPlan) -> None:
        self.plan = plan

    def path(self, i: int) -> str:
        """Return the file of namespace `i`, for setns(2)."""
        return str(_NAMESPACES / self.plan.namespace(i))

    def set_rate(self, rate: int) -> None:
        """Set the rate of every link, in bytes per second, in both directions."""
        _batch("tc", self.plan.shapes(rate))
        for i in range(self.plan.n):
            _run("tc", "-n", self.plan.namespace(i), *shape("eth0", rate).split())


def lacking() -> str:
    """Return why namespaces cannot be created on this machine, with the remedy; empty if they can."""
    if os.geteuid():
        return "needs root, for network namespaces; run it as root"
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            return f"needs {tool}; install iproute2"
    try:
        with network(1, 1_000_000):
            return ""
    except OSError as error:
        return f"cannot make network namespaces with shaped links here ({error}); run it where CAP_NET_ADMIN is given"


@contextmanager
def network(n: int, rate: int) -> Iterator[Network]:
    """Create `n` namespaces whose links carry `rate` bytes per second each way; remove them on exit.

    Raises
    ------
    OSError
        If `ip` or `tc` fails; everything created is removed.
    """
    remove(_leftovers(_existing(), _alive))
    made = Network(NetworkPlan(os.getpid(), n, rate))
    try:
        _batch("ip", made.plan.links())
        for i in range(n):
            _batch("ip", made.plan.inside(i), "-n", made.plan.namespace(i))
            _set_windows(made.path(i))
        made.set_rate(rate)
        yield made
    finally:
        remove(name for name in _existing() if _pid(name) == os.getpid())


def remove(names: Iterable[str]) -> None:
    """Remove namespaces and devices of these names."""
    for name in sorted(names):  # the bridge, the host's ends of the links (which removes the others), the namespaces
        if (_NAMESPACES / name).exists():
            _run("ip", "netns", "del", name)
        else:
            _run("ip", "link", "del", name, missing_ok=True)


def _existing() -> list[str]:
    """Return the names of all namespaces and devices that were created by benchmarks."""
    folders = (_NAMESPACES, Path("/sys/class/net"))
    return [
        entry.name for folder in folders if folder.is_dir() for entry in folder.iterdir() if _OURS.fullmatch(entry.name)
    ]


def _pid(name: str) -> int:
    found = _OURS.fullmatch(name)
    assert found is not None
    return int(found[1])


def _leftovers(names: Iterable[str], alive: Callable[[int], bool]) -> list[str]:
    """Return the names whose process is not `alive`."""
    return [name for name in names if not alive(_pid(name))]


def _alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def _batch(tool: str, lines: Iterable[str], *options: str) -> None:
    _run(tool, *options, "-batch", "-", text="".join(f"{line}\n" for line in lines))


def _run(*command: str, text: str = "", missing_ok: bool = False) -> None:
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode and not missing_ok:
        errors = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise OSError(f"{' '.join(command[:4])}: {errors[0]}")


def _set_windows(path: str) -> None:
    """Limit the receivers' windows in the namespace at `path`."""
    script = f"echo 4096 {_WINDOW} {_WINDOW} > /proc/sys/net/ipv4/tcp_rmem"
    _run("ip", "netns", "exec", Path(path).name, "sh", "-c", script)
