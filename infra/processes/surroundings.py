"""The environment of our processes: what a user's shell, home and working directory may not change in them.

`settle` changes the environment of this process, and so that of each process that it starts. The command and the
machines' processes call it before they import a library that reads the environment.
"""

import os
import pwd
import shlex
import shutil
import sys
import tempfile
from collections.abc import MutableMapping
from pathlib import Path

#: This machine, and the metadata service of a machine of the cloud: never behind a proxy.
_NO_PROXY = ("127.0.0.1", "localhost", "::1", "169.254.169.254")
_ROOT = Path(__file__).resolve().parents[2]


def python_module(module: str, *arguments: str, python: str = sys.executable) -> list[str]:
    """Return the command that runs a module, which Python does not look for in the working directory."""
    return [python, "-P", "-m", module, *arguments]


def proteus_command(*words: str) -> str:
    """Return a command of ours that can be pasted: as this one was typed where a shell would not find `proteus`."""
    typed = sys.argv[0]
    found = shutil.which("proteus") is not None or Path(typed).name != "proteus"
    return shlex.join(["proteus" if found else typed, *words])


def settle(environment: MutableMapping[str, str] | None = None) -> None:
    """Take out of an environment what is meant for others, and give it what our libraries need.

    Parameters
    ----------
    environment : None: that of this process.

    Notes
    -----
    - No proxy for this machine; other addresses keep it.
    - No configuration of Dask. Proteus sets its own.
    - No telemetry of Prefect, unless the environment says otherwise.
    - A home, a user's name, and folders for caches that can be written.
    """
    environment = os.environ if environment is None else environment
    for name in ("NO_PROXY", "no_proxy"):
        words = [word.strip() for word in environment.get(name, "").split(",") if word.strip()]
        environment[name] = ",".join([*words, *(host for host in _NO_PROXY if host not in words)])
    for name in [name for name in environment if name.startswith("DASK_")]:
        del environment[name]
    environment.setdefault("DO_NOT_TRACK", "1")  # Prefect's telemetry, and its notice of it
    environment["DASK_CONFIG"] = environment["DASK_ROOT_CONFIG"] = os.devnull
    _set_home(environment)


def _set_home(environment: MutableMapping[str, str]) -> None:
    try:
        user = pwd.getpwuid(os.getuid())
    except KeyError:  # as in a container with `--user 12345`
        user = None
        if not any(environment.get(name) for name in ("LOGNAME", "USER", "LNAME", "USERNAME")):
            environment["LOGNAME"] = str(os.getuid())
    home = environment.get("HOME") or (user.pw_dir if user else "")
    if not home:
        environment["HOME"] = str(_temporary())
        home = os.devnull
    if not _is_writable(Path(home)):
        environment.setdefault("MPLCONFIGDIR", str(_temporary("matplotlib")))
        environment.setdefault("PREFECT_HOME", str(_temporary("prefect")))
    if not _numba_has_a_folder(environment, Path(home)):
        environment["NUMBA_CACHE_DIR"] = str(_temporary("numba"))


def _numba_has_a_folder(environment: MutableMapping[str, str], home: Path) -> bool:
    """Return whether numba can write its cache: where it is told, next to the sources, or in the user's cache."""
    named = environment.get("NUMBA_CACHE_DIR")
    if named:
        return _is_writable(Path(named))
    return _is_writable(_ROOT / "bidding" / "__pycache__") or _is_writable(
        Path(environment.get("XDG_CACHE_HOME") or home / ".cache")
    )


def _is_writable(folder: Path) -> bool:
    """Return whether files can be made in a folder, or the folder itself."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not os.access(folder, os.W_OK | os.X_OK):
        return False
    try:
        with tempfile.TemporaryFile(dir=folder):  # /proc says that it can be written
            return True
    except OSError:
        return False


def _temporary(name: str = "") -> Path:
    """Return a folder of this user for caches; one that another user has made is not used."""
    folder = Path(tempfile.gettempdir()) / f"proteus-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            folder = Path(tempfile.mkdtemp(prefix="proteus-"))
        (folder / name).mkdir(exist_ok=True)
    except OSError:
        return Path(tempfile.gettempdir())
    return folder / name
