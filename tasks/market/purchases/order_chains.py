"""Names of the orders for machines of the reliable tier; those that buy the same machines again are a chain."""

from proteus_spot.bidding.engine.orders import order_parts

#: Name of the order for the machine that the controller runs on, and of that for the others.
CONTROLLER_ORDER = "reliable-0"
OTHERS_ORDER = "reliable-1"
_AGAIN = "-again-"


def purchase(job_id: str, order_id: str) -> str:
    """Return the name of the first order for the machines that `order_id` bought, or bought again."""
    return _name_and_number(job_id, order_id)[0]


def place_in_chain(job_id: str, order_id: str) -> int:
    """Return how many orders for the same machines there were before this one."""
    return _name_and_number(job_id, order_id)[1]


def is_reliable_order(job_id: str, order_id: str) -> bool:
    """Return whether an order of the job is for machines of the reliable tier, in any generation of the database."""
    return purchase(job_id, order_id) in (CONTROLLER_ORDER, OTHERS_ORDER)


def name_in_chain(first: str, place: int) -> str:
    """Return the name of the order that buys the machines of `first` again, for the `place`-th time."""
    return f"{first}{_AGAIN}{place}"


def _name_and_number(job_id: str, order_id: str) -> tuple[str, int]:
    _, name = order_parts(job_id, order_id)
    first, again, number = name.rpartition(_AGAIN)
    return (first, int(number)) if again and number.isdecimal() else (name, 0)
