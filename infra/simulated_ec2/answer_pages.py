"""The rows of an answer that its filters keep, in pages."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from proteus_spot.infra.simulated_ec2.price_history import offset_of, token_of
from proteus_spot.infra.simulated_ec2.wire_protocol import Ec2Error

Params = Mapping[str, Any]
T = TypeVar("T")

_PAGE = 1000


def matches(values: Mapping[str, list[str]], filters: Iterable[Params]) -> bool:
    """Return whether every filter matches; in its values ``*`` stands for any text and ``?`` for any character."""
    for condition in filters:
        name = condition.get("Name", "")
        if name not in values and not name.startswith("tag:"):
            raise Ec2Error("InvalidParameterValue", f"The filter '{name}' is invalid")
        patterns = [_pattern(wanted) for wanted in condition.get("Values", ())]
        if not any(re.fullmatch(pattern, value, re.DOTALL) for pattern in patterns for value in values.get(name, [])):
            return False
    return True


def _pattern(wanted: str) -> str:
    """Return the regular expression of a filter's value; a backslash escapes a wildcard."""
    wild = {"*": ".*", "?": "."}
    parts = re.findall(r"\\([*?\\])|([*?])|(.)", wanted, re.DOTALL)
    return "".join(wild.get(star) or re.escape(escaped or plain) for escaped, star, plain in parts)


def page_of(rows: list[T], is_match: Callable[[T], bool], params: Params) -> tuple[list[T], str | None]:
    """Return one page of the `rows` to keep, and the token of the next.

    A token is an index into all rows, which only grow at their end, so no row is missed when others cease to match.
    """
    limit = min(params.get("MaxResults", _PAGE), _PAGE)
    page: list[T] = []
    for index in range(offset_of(params.get("NextToken")), len(rows)):
        if is_match(rows[index]):
            if len(page) == limit:
                return page, token_of(index)
            page.append(rows[index])
    return page, None
