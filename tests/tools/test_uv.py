"""uv looks where pip is configured to look, and nowhere else."""

import hashlib
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.wheels import write_wheel

TOOL = Path(__file__).resolve().parents[2] / "tools" / "uv.py"
_TOOL = runpy.run_path(str(TOOL))
settings, variables = _TOOL["settings"], _TOOL["variables"]


def test_the_environment_overrides_the_section_of_install_and_that_the_global_one() -> None:
    listed = (
        ":env:.cert='c'\nglobal.cert='a'\nglobal.index-url='a=b'\n"
        "install.cert='b'\ninstall.index-url='c'\nlist.cert='d'"
    )
    assert settings(listed) == {"cert": "c", "index-url": "c"}
    assert settings("") == {}


def test_without_a_configuration_uv_keeps_its_defaults() -> None:
    assert variables({}) == {}
    assert variables({"index-url": "", "constraint": "c.txt", "extra-index-url": "\n"}) == {}


@pytest.mark.parametrize(
    ("pip", "uv"),
    [
        ({"index-url": "file:///a"}, {"UV_DEFAULT_INDEX": "file:///a"}),
        (
            {"extra-index-url": "\nfile:///a\n  file:///b"},
            {"UV_INDEX": "file:///a file:///b", "UV_INDEX_STRATEGY": "unsafe-best-match"},
        ),
        ({"find-links": "/a /b"}, {"UV_FIND_LINKS": "/a,/b"}),
        ({"cert": "/a.pem", "no-index": "true"}, {"SSL_CERT_FILE": "/a.pem", "UV_NO_INDEX": "true"}),
        ({"trusted-host": "a b", "proxy": "p:1"}, {"UV_INSECURE_HOST": "a b", "ALL_PROXY": "p:1"}),
        ({"default-timeout": "180"}, {"UV_HTTP_TIMEOUT": "180"}),
    ],
)
def test_what_pip_is_given_uv_is_given(pip: dict[str, str], uv: dict[str, str]) -> None:
    assert variables(pip) == uv


def _installed(tmp_path: Path, configuration: str, requirement: str) -> subprocess.CompletedProcess[str]:
    """Have uv install `requirement`, hash required, into `tmp_path`/target with this configuration of pip alone."""
    (tmp_path / "pip.conf").write_text(f"[global]\nextra-index-url =\n{configuration}\n")
    (tmp_path / "wanted.txt").write_text(requirement)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))}
    environment |= {"PIP_CONFIG_FILE": str(tmp_path / "pip.conf"), "UV_CACHE_DIR": str(tmp_path / "cache")}
    install = ["pip", "install", "--require-hashes", "--target", str(tmp_path / "target"), "-r", "wanted.txt"]
    return subprocess.run(
        [sys.executable, str(TOOL), *install],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def _wheel(directory: Path) -> str:
    """Make the distribution `mine` in `directory`; return what requires just this file."""
    directory.mkdir(parents=True)
    made = write_wheel(directory, {"mine.py": "ANSWER = 42\n"})
    return f"mine==1.0 --hash=sha256:{hashlib.sha256(made.read_bytes()).hexdigest()}"


def test_a_folder_of_wheels_that_pip_knows_is_where_uv_finds_one(tmp_path: Path) -> None:
    wanted = _wheel(tmp_path / "wheels")
    done = _installed(tmp_path, f"no-index = true\nfind-links = {tmp_path / 'wheels'}", wanted)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "target" / "mine.py").read_text() == "ANSWER = 42\n"


def test_an_index_that_pip_knows_is_where_uv_finds_one(tmp_path: Path) -> None:
    wanted = _wheel(tmp_path / "simple" / "mine")
    link = "<a href='mine-1.0-py3-none-any.whl'>mine-1.0-py3-none-any.whl</a>"
    (tmp_path / "simple" / "mine" / "index.html").write_text(link)
    done = _installed(tmp_path, f"find-links =\nindex-url = {(tmp_path / 'simple').as_uri()}", wanted)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "target" / "mine.py").is_file()


def test_a_file_of_another_hash_is_refused(tmp_path: Path) -> None:
    wanted = _wheel(tmp_path / "wheels")
    (tmp_path / "wheels" / "mine-1.0-py3-none-any.whl").unlink()
    write_wheel(tmp_path / "wheels", {"mine.py": "ANSWER = 43\n"})
    done = _installed(tmp_path, f"no-index = true\nfind-links = {tmp_path / 'wheels'}", wanted)
    assert done.returncode != 0
    assert "Hash mismatch" in done.stderr
    assert not (tmp_path / "target" / "mine.py").exists()


def test_a_configuration_that_pip_cannot_read_ends_it(tmp_path: Path) -> None:
    done = _installed(tmp_path, "[global", "mine==1.0")
    assert done.returncode != 0
    assert "pip.conf" in done.stderr
    assert "error:" not in done.stderr, "uv ran"
