"""What pydantic finds wrong with a record, in words for its author."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

#: Characters of a wrong value that are shown.
_SHOWN = 60
#: Type of a pydantic error -> what is wanted; the names in braces are of the error's context.
_WANTED: Mapping[str, str] = MappingProxyType(
    {
        "bool_parsing": "must be true or false",
        "bool_type": "must be true or false",
        "dict_type": "must be a mapping of names to values",
        "enum": "must be {expected}",
        "finite_number": "must be a finite number",
        "float_parsing": "must be a number",
        "float_type": "must be a number",
        "greater_than": "must be above {gt}",
        "greater_than_equal": "must be at least {ge}",
        "int_from_float": "must be a whole number",
        "int_parsing": "must be a whole number",
        "int_type": "must be a whole number",
        "less_than": "must be below {lt}",
        "less_than_equal": "must be at most {le}",
        "list_type": "must be a list",
        "literal_error": "must be {expected}",
        "model_attributes_type": "must be a mapping of names to values",
        "model_type": "must be a mapping of names to values",
        "string_pattern_mismatch": "must match the pattern {pattern}",
        "string_too_long": "must have at most {max_length} characters",
        "string_too_short": "must have at least {min_length} characters",
        "string_type": "must be text",
        "too_long": "must have at most {max_length} entries",
        "too_short": "must have at least {min_length} entries",
    }
)
#: Types whose words say all; what was given adds nothing.
_COMPLETE: Mapping[str, str] = MappingProxyType(
    {"missing": "is missing; give it", "extra_forbidden": "is not known; fix its name, or leave it out"}
)


def first_fault(error: ValidationError, name: Callable[[str], str] = str) -> str:
    """Return the first fault on one line, after its place: ``training.clocks: must be at least 1 (is 0)``.

    Parameters
    ----------
    name : turns the dotted name of a field into what the user knows it by; the fault of a whole record has no place.
    """
    fault = error.errors()[0]
    place = ".".join(str(part) if str(part).isprintable() else repr(part) for part in fault["loc"])
    words = _words(fault)
    return f"{name(place)}: {words}" if place else words


def _words(fault: ErrorDetails) -> str:
    kind, context = fault["type"], {key: _plain(value) for key, value in fault.get("ctx", {}).items()}
    if kind in _COMPLETE:
        return _COMPLETE[kind]
    if kind in ("value_error", "assertion_error"):
        return " ".join(
            fault["msg"].partition(", ")[2].split()
        )  # the words of our own check, which name what was given
    wanted = _WANTED[kind].format_map(context) if kind in _WANTED else fault["msg"][:1].lower() + fault["msg"][1:]
    shown = repr(fault["input"])
    return f"{wanted} (is {shown[:_SHOWN]}{'…' if len(shown) > _SHOWN else ''})"


def _plain(value: Any) -> Any:
    return f"{value:g}" if isinstance(value, float) else value
