"""The environment of our processes."""

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from proteus_spot.infra.processes.surroundings import proteus_command, python_module, settle


def settled(**variables: str) -> dict[str, str]:
    environment = dict(variables)
    settle(environment)
    return environment


def test_this_machine_is_behind_no_proxy_and_others_keep_theirs() -> None:
    found = settled(HOME="/root", http_proxy="http://proxy:3128", no_proxy="example.org, localhost")
    assert found["http_proxy"] == "http://proxy:3128"
    assert found["no_proxy"].split(",") == ["example.org", "localhost", "127.0.0.1", "::1", "169.254.169.254"]
    assert "127.0.0.1" in found["NO_PROXY"].split(",")


def test_configuration_of_dask_is_left_out() -> None:
    found = settled(HOME="/root", DASK_DISTRIBUTED__WORKER__LIFETIME="1s", DASK_CONFIG="/of/the/user")
    assert {name for name in found if name.startswith("DASK_")} == {"DASK_CONFIG", "DASK_ROOT_CONFIG"}
    assert found["DASK_CONFIG"] == os.devnull


def test_modules_of_the_user_are_the_user_s(tmp_path: Path) -> None:
    for name in ("infra.py", "tasks.py"):
        (tmp_path / name).write_text("OWN = True")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "HOME": str(tmp_path)}
    settle(environment)
    program = "import proteus_spot.infra.processes.surroundings, infra, tasks; assert infra.OWN and tasks.OWN"
    subprocess.run([*python_module("timeit")[:-2], "-c", program], cwd=tmp_path, env=environment, check=True)


@pytest.mark.parametrize("verb", ["flows.py", "tasks.py", "infra.py"])
def test_the_command_starts_beside_modules_of_such_names(tmp_path: Path, verb: str) -> None:
    (tmp_path / verb).write_text("raise SystemExit('of the user')")
    command = [Path(sys.executable).with_name("proteus"), "--version"]
    environment = {**os.environ, "PYTHONPATH": ".", "HOME": str(tmp_path)}
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)


def test_without_a_home_or_a_name_there_are_folders_for_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(number: int) -> pwd.struct_passwd:
        raise KeyError(number)

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.setattr("proteus_spot.infra.processes.surroundings._ROOT", Path("/proc"))
    for environment in (settled(), settled(HOME="/proc")):
        assert environment["LOGNAME"] == str(os.getuid())
        folders = [environment["NUMBA_CACHE_DIR"]]
        if environment["HOME"] == "/proc":
            folders += [environment["MPLCONFIGDIR"], environment["PREFECT_HOME"]]
        assert all(Path(folder).is_dir() for folder in [environment["HOME"], *folders])
    assert settled(HOME="/proc", NUMBA_CACHE_DIR="/proc/1")["NUMBA_CACHE_DIR"] != "/proc/1"


@pytest.mark.parametrize(
    ("typed", "found", "printed"),
    [
        (".venv/bin/proteus", None, ".venv/bin/proteus cost 'a b'"),
        ("/opt/my env/proteus", None, "'/opt/my env/proteus' cost 'a b'"),
        (".venv/bin/proteus", "/usr/bin/proteus", "proteus cost 'a b'"),
        ("pytest", None, "proteus cost 'a b'"),
    ],
)
def test_a_command_that_is_printed_can_be_pasted(
    typed: str, found: str | None, printed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [typed])
    monkeypatch.setattr("shutil.which", lambda name: found)
    assert proteus_command("cost", "a b") == printed


def test_prefect_sends_no_telemetry_unless_the_user_wants_it() -> None:
    assert settled(HOME="/root")["DO_NOT_TRACK"] == "1"
    assert settled(HOME="/root", DO_NOT_TRACK="0")["DO_NOT_TRACK"] == "0"
