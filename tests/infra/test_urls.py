"""URLs of paths, as fsspec and SQLAlchemy read them."""

from contextlib import closing
from pathlib import Path

import click
import pytest
from pydantic import TypeAdapter
from sqlalchemy import make_url

from proteus_spot.flows.cli.main import cli
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.settings import Settings
from proteus_spot.infra.state.store import Store
from proteus_spot.infra.storage.blobs import Blobs
from proteus_spot.infra.urls import at_home, file_url, local_path, sqlite_url
from proteus_spot.studies.form_fields import Location
from tests.support.cli_process import ODD_NAME

NAMES = (ODD_NAME, "a b", "ü", "a#b", "100%", "a%20b", "a&b", "a+b", "it's", "a::b", "a:b@c", '"', "*", "[1]", "~", "é")


@pytest.mark.parametrize("name", [*NAMES, "a?b", "$HOME", "{a}", "\\"])
def test_blobs_lie_below_the_directory_that_was_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    assert local_path(file_url(path)) == str(path)
    blobs = Blobs(file_url(path))
    blobs.write_bytes("jobs/a", b"1")
    assert (path / "jobs" / "a").read_bytes() == b"1"
    assert (blobs.list(), blobs.read_bytes("jobs/a"), blobs.exists("jobs/a")) == (["jobs/a"], b"1", True)
    assert [each.name for each in tmp_path.iterdir()] == [name]
    blobs.remove_set("jobs")
    assert blobs.list() == []


@pytest.mark.parametrize("name", NAMES)
def test_a_database_lies_in_the_directory_that_was_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / name / "state.db"
    assert make_url(sqlite_url(path)).database == str(path)
    with closing(Store.open(sqlite_url(path))) as store:
        assert store.jobs.list_jobs() == []
    assert path.is_file()
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_a_path_that_no_database_url_can_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a\?b/state\.db: a state database cannot lie .*; name another directory$"):
        sqlite_url(tmp_path / "a?b" / "state.db")


def test_a_relative_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert (file_url(Path("a b")), sqlite_url(Path("a b"))) == (f"file://{tmp_path}/a b", f"sqlite:///{tmp_path}/a b")


def test_the_default_places_are_in_a_home_of_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / ODD_NAME))
    settings = Settings()
    assert local_path(settings.blob_url) == str(tmp_path / ODD_NAME / "proteus" / "blobs")
    assert make_url(settings.database_url).database == str(tmp_path / ODD_NAME / "proteus" / "state.db")


@pytest.mark.parametrize("url", ["s3://bucket/a", "memory://a", "/a", "file://host/a"])
def test_another_url_names_no_path_here(url: str) -> None:
    assert local_path(url) is None


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("~", "/of/ann"),
        ("~/a b", "/of/ann/a b"),
        ("file://~/a", "file:///of/ann/a"),
        ("file:///~/a", "file:///of/ann/a"),
        ("sqlite:///~/a.db", "sqlite:////of/ann/a.db"),
        ("~no-such-user/a", "~no-such-user/a"),
        ("a/~/b", "a/~/b"),
        ("s3://bucket/~/a", "s3://bucket/~/a"),
        ("-", "-"),
    ],
)
def test_a_leading_tilde_is_the_home(text: str, expanded: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/of/ann")
    assert at_home(text) == expanded


def test_a_tilde_is_expanded_in_settings_fields_and_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/of/ann")
    monkeypatch.setenv("PROTEUS_BLOB_URL", "file://~/blobs")
    monkeypatch.setenv("PROTEUS_DATABASE_URL", "sqlite:///~/state.db")
    assert (Settings().blob_url, Settings().database_url) == (
        "file:///of/ann/blobs",
        "sqlite:////of/ann/state.db",
    )
    assert TypeAdapter(Location).validate_python("~/my.py") == "/of/ann/my.py"
    words = cli.parse_args(click.Context(cli), ["train", "mlr", "--data", "~/a.csv", "--dir=~/runs"])
    assert words == ["mlr", "--data", "/of/ann/a.csv", "--dir=/of/ann/runs"]
