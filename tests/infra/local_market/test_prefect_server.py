"""The Prefect server of a local run."""

import socket
from pathlib import Path

from proteus_spot.infra.local_market.prefect_server import is_free, kept_port


def test_a_port_is_kept_from_one_time_to_the_next(tmp_path: Path) -> None:
    file = tmp_path / "port"
    first = kept_port(file)
    assert kept_port(file) == first
    assert kept_port(file, 1234) == 1234
    assert file.read_text() == "1234\n"


def test_a_port_that_is_taken_or_damaged_is_another(tmp_path: Path) -> None:
    file = tmp_path / "port"
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        file.write_text(f"{other.getsockname()[1]}\n")
        port = kept_port(file)
        assert port != other.getsockname()[1]
    for text in ("", "x", "99999"):
        file.write_text(text)
        assert is_free(kept_port(file))
