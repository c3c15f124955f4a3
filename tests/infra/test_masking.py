"""No secret of a URL is shown: in errors, in logs, in what the state database says."""

import io
import logging
import string
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proteus_spot.infra.errors import InputError, JobFailed, ProteusError
from proteus_spot.infra.masking import MASK, MOST_CHARACTERS, mask_logs, masked, shortened
from proteus_spot.infra.state.records import StoreError
from proteus_spot.infra.state.store import Store
from proteus_spot.infra.storage.blobs import BlobError, BlobMissing, Blobs

#: What cannot end a URL in a text.
_SAFE = "".join(c for c in string.printable if c not in string.whitespace + "'\"<>")
_NAMES = st.text(string.ascii_lowercase + string.digits, min_size=1, max_size=8)
#: As they stand in a URL: any character by its code, or the few that need none.
_SECRETS = st.text(_SAFE, min_size=6, max_size=30).map(lambda text: f"Zq{quote(text, safe='!$*+,._~-')}")
_SECRET_PARAMETERS = st.sampled_from(
    [
        *(
            "password",
            "PASSWORD",
            "sslpassword",
            "passwd",
            "pwd",
            "token",
            "access_token",
            "api_key",
            "sig",
            "Signature",
        ),
        *("X-Amz-Signature", "X-Amz-Credential", "X-Amz-Security-Token", "AWSAccessKeyId", "X-Goog-Signature"),
        *("secret", "key", "pass%77ord", "credential", "auth"),
    ]
)
_SCHEMES = st.sampled_from(["postgresql+psycopg", "postgresql", "https", "s3", "http", "redis", "gs"])
_PLAIN_PARAMETERS = st.dictionaries(st.sampled_from(["host", "sslmode", "versionId", "region"]), _NAMES, max_size=2)


@st.composite
def urls(draw: st.DrawFn) -> tuple[str, tuple[str, ...]]:
    """A URL with a password, secret parameters or both, and its secrets."""
    secrets = draw(st.lists(_SECRETS, min_size=1, max_size=3, unique=True))
    user, host = draw(_NAMES), draw(_NAMES)
    in_user = draw(st.booleans())
    parameters = [(name, value) for name, value in draw(_PLAIN_PARAMETERS).items()]
    parameters += [(draw(_SECRET_PARAMETERS), secret) for secret in secrets[1 if in_user else 0 :]]
    query = draw(st.sampled_from("&;")).join(f"{name}={value}" for name, value in draw(st.permutations(parameters)))
    credentials = f"{user}:{secrets[0]}@" if in_user else draw(st.sampled_from(["", f"{user}@"]))
    port = draw(st.sampled_from(["", ":5432"]))
    return f"{draw(_SCHEMES)}://{credentials}{host}{port}/{draw(_NAMES)}{'?' if query else ''}{query}", tuple(secrets)


@given(urls(), st.sampled_from(["{}", "data {}: is not there", "('{}', 3)", '"{}"', "<{}>", "a {} and {}", "{},x"]))
def test_no_secret_is_left_in_a_text(url: tuple[str, tuple[str, ...]], sentence: str) -> None:
    text, secrets = url
    shown = masked(sentence.replace("{}", text))
    assert not [secret for secret in secrets if secret in shown]
    assert MASK in shown
    assert masked(shown) == shown


@given(_SCHEMES, _NAMES, _NAMES, _PLAIN_PARAMETERS, st.text(_SAFE + " ", max_size=20))
def test_what_holds_no_secret_stays(scheme: str, host: str, path: str, plain: dict[str, str], words: str) -> None:
    query = "&".join(f"{name}={value}" for name, value in plain.items())
    words = words.replace("=", "").replace("://", "")
    text = f"{words} {scheme}://{host}:80/{path}/a@b?{query} {words}"
    assert masked(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql+psycopg://me@host/db", "postgresql+psycopg://me@host/db"),
        ("postgresql+psycopg://me:w@rd@host/db", "postgresql+psycopg://me:***@host/db"),
        ("postgresql://me:w/rd@host/db", "postgresql://me:***@host/db"),
        ("postgresql:///db?host=/run&password=w", "postgresql:///db?host=/run&password=***"),
        ("s3://KEY:WORD@bucket/a", "s3://***@bucket/a"),
        ("https://ghp_1@host/a", "https://***@host/a"),
        (
            "https://h/a?X-Amz-Date=1&X-Amz-Signature=2&versionId=3",
            "https://h/a?X-Amz-Date=***&X-Amz-Signature=***&versionId=3",
        ),
        ("https://h/a#access_token=1", "https://h/a#access_token=***"),
        ("sqlite:////a:b@c/state.db", "sqlite:////a:b@c/state.db"),
        ("http://127.0.0.1:80/a@b", "http://127.0.0.1:80/a@b"),
        ("tcp://10.0.0.1:8786", "tcp://10.0.0.1:8786"),
        ("a?b, key=3; token = 4", "a?b, key=3; token = 4"),
        ("?password=&a=1", "?password=&a=1"),
    ],
)
def test_examples(text: str, shown: str) -> None:
    assert masked(text) == shown


@pytest.mark.parametrize("kind", [ProteusError, InputError, JobFailed, BlobError, BlobMissing, StoreError])
def test_an_error_shows_none(kind: type[ProteusError]) -> None:
    assert str(kind("s3://K:WORD@b/a: is not there")) == "s3://***@b/a: is not there"


@pytest.mark.parametrize("url", ["postgresql+psycopg://u:WORD@{}/db", "postgresql+psycopg://u@{}/db?password=WORD"])
def test_a_database_that_does_not_answer_is_told_without_its_password(url: str) -> None:
    with pytest.raises(InputError, match=r"state database postgresql") as caught:
        Store.open(url.format("127.0.0.1:1"))
    assert "WORD" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_sqlite_database_that_fails_later_is_told_without_its_key(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///file:{tmp_path}/state.db?mode=rwc&uri=true&key=WORD")
    with store.database.write() as connection:
        connection.exec_driver_sql("DROP TABLE observations")
    with pytest.raises(StoreError) as caught:
        store.jobs.observations("job")
    assert "key=***" in str(caught.value)
    assert "WORD" not in str(caught.value)
    store.close()


def test_a_blob_that_is_missing_is_told_without_the_key_of_its_store(tmp_path: Path) -> None:
    with pytest.raises(BlobMissing) as caught:
        Blobs("memory://K:WORD@store").read_bytes("a")
    assert "WORD" not in str(caught.value)


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """What a logger of this process writes while logs are masked."""
    before = logging.getLogRecordFactory()
    mask_logs.cache_clear()
    mask_logs()
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logger = logging.getLogger("masked")
    logger.addHandler(handler)
    yield stream
    logger.removeHandler(handler)
    logging.setLogRecordFactory(before)
    mask_logs.cache_clear()


def test_logs_and_their_tracebacks_show_none(log: io.StringIO) -> None:
    logger = logging.getLogger("masked")
    logger.warning("cannot read %s: %d", "https://h/a?sig=WORD", 3)
    logger.warning("as it is: %s", "https://h/a")
    try:
        raise ValueError("s3://K:WORD@b/a")
    except ValueError:
        logger.exception("failed")
    text = log.getvalue()
    assert "WORD" not in text
    assert "WARNING cannot read https://h/a?sig=***: 3\nWARNING as it is: https://h/a\nERROR failed\n" in text
    assert "ValueError: s3://***@b/a" in text


@pytest.mark.parametrize(
    "unit", ["x", "a+.-", "1, ", "a:", "://", "http://a:", "?a", "?a=b", "&;#", "?k=:.,)", "a:b@", "?token=", "%41"]
)
@pytest.mark.parametrize(("begin", "end"), [("", ""), ("?key=", "x"), ("http://", "@b")])
def test_a_text_of_any_kind_is_masked_in_linear_time(unit: str, begin: str, end: str) -> None:
    text = begin + unit * (200_000 // len(unit)) + end
    began_s = time.process_time()
    masked(text)
    assert time.process_time() - began_s < 2.0, "quadratic time would take minutes"


def test_a_long_message_is_cut_before_it_is_masked_and_no_part_of_a_secret_is_left() -> None:
    url = f"https://user:{'Zq' * MOST_CHARACTERS}@host/?token={'Zr' * MOST_CHARACTERS}"
    for text in (url, f"cannot open {url}: no such host", "x" * 10**7):
        shown = str(ProteusError(text))
        assert len(shown) < MOST_CHARACTERS + 100
        assert "ZqZq" not in shown.removeprefix("cannot open ").partition("@")[2]
        assert "Zr" not in shown
    assert str(ProteusError("x" * MOST_CHARACTERS)) == "x" * MOST_CHARACTERS
    assert shortened("begin " + "x" * 5000 + " the end", 100).endswith("… the end")
