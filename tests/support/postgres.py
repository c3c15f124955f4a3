"""A PostgreSQL server for the tests, run by the binaries of this machine; each test gets a database of its own."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from tests.support.timeouts import PATIENCE

#: Why a test that needs the server is skipped.
ABSENT = "no PostgreSQL on this machine: initdb is neither in PATH nor in /usr/lib/postgresql/*/bin"
#: PostgreSQL does not run as root: the first of these users of the machine runs it then.
_USERS = ("postgres", "nobody")
_NUMBERS = count()


def binaries() -> Path | None:
    """Return the folder of `initdb` and `postgres`; None if there is none."""
    found = shutil.which("initdb")
    folders = [] if found is None else [Path(found).resolve().parent]
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in folders if (folder / "postgres").exists() and (folder / "initdb").exists()), None)


@dataclass(frozen=True)
class PostgresServer:
    """A running server that listens on a socket in `folder` alone."""

    folder: Path

    def url(self, database: str) -> str:
        """Return the SQLAlchemy URL of a database."""
        return f"postgresql+psycopg://proteus@/{database}?host={self.folder}"

    @contextmanager
    def database(self) -> Iterator[str]:
        """Yield the URL of a new database; it is dropped at the end, whoever is still connected."""
        import psycopg

        name = f"test_{next(_NUMBERS)}"
        with psycopg.connect(f"host={self.folder} user=proteus dbname=postgres", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")  # type: ignore[arg-type]
            try:
                yield self.url(name)
            finally:
                connection.execute(f"DROP DATABASE {name} WITH (FORCE)")  # type: ignore[arg-type]


@contextmanager
def postgres_server(folder_of_binaries: Path) -> Iterator[PostgresServer]:
    """Run a server while the block does, as an ordinary user."""
    user = next((name for name in _USERS if _exists(name)), None) if os.geteuid() == 0 else None
    who = {} if user is None else {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}
    with tempfile.TemporaryDirectory(prefix="proteus-pg-") as name:  # a socket's path must be short
        folder = Path(name)
        if user is not None:
            os.chown(folder, pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid)
        data = folder / "data"
        initdb = [folder_of_binaries / "initdb", "-D", data, "-U", "proteus", "-E", "UTF8", "--locale=C", "--no-sync"]
        subprocess.run([*initdb, "--auth=trust"], check=True, capture_output=True, cwd=folder, **who)
        # The launcher of infra/child_process.py needs an interpreter that the other user may run.
        leash = ["setpriv", "--pdeathsig", "INT", "--"] if shutil.which("setpriv") else []
        options = ["-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=60", "-k", folder]
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen(
                [*leash, folder_of_binaries / "postgres", "-D", data, *options],
                stdout=log,
                stderr=log,
                cwd=folder,
                **who,
            )
            try:
                _wait_until_ready(server, folder)
                yield PostgresServer(folder)
            finally:
                server.send_signal(signal.SIGINT)  # a fast shutdown: it waits for no client
                try:
                    server.wait(10 * PATIENCE)
                except subprocess.TimeoutExpired:
                    server.kill()
                    server.wait()


def _exists(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


def _wait_until_ready(server: subprocess.Popen[bytes], folder: Path) -> None:
    import psycopg

    until_s = time.monotonic() + 30 * PATIENCE
    while True:
        try:
            psycopg.connect(f"host={folder} user=proteus dbname=postgres", connect_timeout=5).close()
        except psycopg.OperationalError as error:
            if server.poll() is not None or time.monotonic() > until_s:
                raise RuntimeError(f"PostgreSQL does not start: {(folder / 'log').read_text()}") from error
            time.sleep(0.05)
        else:
            return
