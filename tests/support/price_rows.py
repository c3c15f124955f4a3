"""Rows of price files, as text."""

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
