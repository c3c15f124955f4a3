"""The command `proteus` as a user starts it, in an empty home, and the files that it leaves."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import click
import psutil
import pytest
from click.testing import CliRunner

from proteus_spot.infra.errors import InputError
from tests.support.market_servers import wait_for
from tests.support.timeouts import PATIENCE

#: The command of the environment that runs the tests.
PROTEUS = str(Path(sys.executable).with_name("proteus"))


#: A name of a directory that shells, URLs and templates read otherwise than a file system does.
ODD_NAME = "my jöbs #1 100%20 & + it's {a} $HOME"


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str


def environment(home: Path) -> dict[str, str]:
    """An environment in which nothing of the user's is found."""
    home.mkdir(parents=True, exist_ok=True)
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "NUMBA_CACHE_DIR", "PYTHONPATH") if name in os.environ}
    return {**kept, "HOME": str(home), "TMPDIR": str(home), "COLUMNS": "200"}


def proteus(*arguments: str, cwd: Path, home: Path, timeout_s: float = 100, **variables: str) -> Outcome:
    """Run the command to its end."""
    done = subprocess.run(
        [PROTEUS, *arguments],
        cwd=cwd,
        env=environment(home) | variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="surrogateescape",  # a name that is not UTF-8 is printed as its bytes
        timeout=timeout_s * PATIENCE,
        check=False,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def inside(*arguments: str, cwd: Path, home: Path, **variables: str) -> Outcome:
    """Run the command to its end in this process: for what ends before it has begun anything, and what is many."""
    from proteus_spot.flows.cli.main import main

    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(cwd)
        patch.setattr(os, "environ", os.environ.copy())
        os.environ.clear()
        os.environ.update(environment(home) | variables)
        patch.setattr(tempfile, "tempdir", None)
        patch.setattr(sys, "argv", ["proteus", *arguments])
        patch.setattr(os, "_exit", sys.exit)
        try:
            main()
            code: Any = 0
        except SystemExit as end:
            code = end.code or 0
    return Outcome(code, out.getvalue(), err.getvalue())


def refusal_line(verb: click.Command, arguments: Sequence[str]) -> str:
    """Run a verb in this process on bad input; return the line that refuses it, after checking that it is one."""
    done = CliRunner().invoke(verb, [*arguments])
    if isinstance(done.exception, InputError):
        line = str(done.exception)
        assert "\n" not in line
        return line
    assert done.exit_code == 2, done
    return done.stderr


def tree(directory: Path) -> dict[str, bytes]:
    """Return the content of each file below a directory; folders are empty."""
    files = directory.rglob("*")
    return {str(path.relative_to(directory)): path.read_bytes() if path.is_file() else b"" for path in files}


class Running:
    """A verb of `proteus` that is under way, its output in a file."""

    def __init__(self, process: "subprocess.Popen[bytes]", output: Path, directory: Path) -> None:
        self.process = process
        self.output = output
        self.directory = directory

    def text(self) -> str:
        """What it has said so far."""
        return self.output.read_text()

    def wait_said(self, pattern: str, within_s: float = 60.0) -> None:
        """Wait until it has said something."""

        def said() -> bool:
            assert self.process.poll() is None, f"ended with {self.process.returncode}: {self.text()}"
            return re.search(pattern, self.text()) is not None

        wait_for(said, pattern, within_s)

    def signal(self, number: signal.Signals, within_s: float = 15.0) -> int:
        """Send a signal; return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(within_s * PATIENCE)

    def left(self) -> list[str]:
        """The processes that still have to do with it: all carry its directory in a path, or its markets' mark."""
        return processes_of(self.directory)


@contextmanager
def running(
    directory: Path, *options: str, verb: str = "run", output: Path | None = None, **variables: str
) -> Iterator[Running]:
    """Start ``proteus run`` (or another verb) in `directory`; it is gone at the end, and all that worked for it."""
    output = output or directory.with_suffix(".txt")
    with output.open("wb") as out:
        process = subprocess.Popen(
            [PROTEUS, *verb.split(), "--dir", str(directory), *options],
            cwd=directory.parent,
            env=environment(directory.parent / "home") | variables,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        yield Running(process, output, directory)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
    wait_gone(directory)


def processes_of(directory: Path) -> list[str]:
    """The living processes that work for a run: by what they were started with, their environment, or their place."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                continue
            told = [*process.cmdline(), *process.environ().values(), process.cwd()]
            if any(str(directory) in text for text in told):
                found.append(f"{process.pid} {' '.join(process.cmdline())[:150]}")
        except psutil.Error:  # it ended while we looked, or is another user's
            continue
    return found


def wait_gone(directory: Path, within_s: float = 10.0) -> None:
    """Wait until nothing works for a run any more."""
    wait_for(lambda: not processes_of(directory), f"the end of {processes_of(directory)}", within_s)


def bill_micros(log: list[dict[str, Any]], prices: Path, on_demand_usd: dict[str, str], until_s: int) -> int:
    """The bill by the rules of the bid era, from the market's record and the price file; written from the rules alone.

    Each instance is billed by itself. An hour is charged when it begins, a spot one at the price of that instant; an
    eviction refunds the hour in progress (one in the very second in which the hour began has not begun another);
    leaving earlier oneself refunds nothing. On-demand hours cost the catalogue's price, once begun.
    """
    rows: dict[str, list[tuple[int, Decimal]]] = {}
    for line in prices.read_text().splitlines()[1:]:
        moment, kind, zone, _, price = line.replace('"', "").split(",")
        rows.setdefault(f"{kind}/{zone}", []).append((seconds_of(moment), Decimal(price)))
    total = Decimal(0)
    for instance in log:
        begin, end = instance["launched_at_s"], instance["ended_at_s"]
        stop = until_s if end is None else end
        for hour in range(begin, stop, 3600):
            if instance["bid_micros"] is None:
                total += Decimal(on_demand_usd[instance["market"].split("/")[0]])
                continue
            if instance["end_cause"] == "evicted" and stop < hour + 3600:
                continue
            total += [price for at_s, price in rows[instance["market"]] if at_s <= hour][-1]
    micros = total * 1_000_000
    assert micros == int(micros)
    return int(micros)


def seconds_of(moment: str) -> int:
    """Seconds since 1970 of a time as price files write it."""
    return int(datetime.fromisoformat(moment).timestamp())


def market_log(directory: Path) -> list[dict[str, Any]]:
    """The market's own record, as the endpoint wrote it when it ended."""
    log: list[dict[str, Any]] = json.loads((directory / "market-log.json").read_text())
    return log
