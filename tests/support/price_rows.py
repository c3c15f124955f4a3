"""Rows of price files, as text, and how a bad file is refused."""

from pathlib import Path

import numpy as np
import pytest

from proteus_spot.bidding.market.traces import Trace
from proteus_spot.infra.errors import InputError
from proteus_spot.infra.market_data.price_files import read_prices

HEADER = "timestamp,instance_type,az,product,price"


def price_row(
    time: str = "2016-04-01T12:30:00Z",
    kind: str = "c4.large",
    zone: str = "us-east-1a",
    price: str = "0.0324",
    product: str = "Linux/UNIX",
) -> str:
    """Return a row without its line's end."""
    return f"{time},{kind},{zone},{product},{price}"


def trace(*events: tuple[int, int]) -> Trace:
    """Return the trace of (Unix time, micro-dollars)."""
    return Trace(np.array([at for at, _ in events]), np.array([micros for _, micros in events]))


def refusal(path: Path) -> str:
    """Return the error of a bad price file, after checking that it is one line that names it."""
    with pytest.raises(InputError) as caught:
        read_prices(path)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"{path}: ")
    assert ";" in message, "the fix comes after the fault"
    assert caught.value.exit_code == 2
    return message.removeprefix(f"{path}: ")
