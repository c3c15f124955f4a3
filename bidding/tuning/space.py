"""Search space of a sweep: parameters as a user writes them, their grid, and seeded draws.

A parameter is a mapping of its kind to what it may be, as in ``{log: [1.0e-5, 1.0e-1], points: 8}``. Kinds: ``choice``
(a list of values), ``int``, ``uniform`` and ``log`` (lowest and highest value, both included). A setting is a mapping
of parameter names to values; the settings of a grid and of a draw are plain Python values, which JSON can represent.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

#: Maximum number of trials of a sweep: their numbers have four digits.
MOST_TRIALS = 10_000
#: Maximum number of parameters, of characters of a name, and of characters of a text among choices.
_MOST_PARAMETERS = 100
_MOST_CHARACTERS = 200
#: Largest whole number: within the integers of arrays and databases.
_MOST_INT = 2**62
#: Significant digits of a point of a grid; more would only show how it was computed.
_DIGITS = 12

Value = str | int | float | bool | None
Params = dict[str, Value]


class ParameterKind(StrEnum):
    """ParameterKind of a parameter."""

    CHOICE = "choice"
    INT = "int"
    UNIFORM = "uniform"
    LOG = "log"


_KINDS = tuple(ParameterKind)
_FORMS = "choice: [VALUE, …], or int, uniform or log: [LOW, HIGH]"


@dataclass(frozen=True, slots=True)
class Parameter:
    """What a parameter may be: `choices` of a choice, else all from `low` to `high`; `points` of a grid, if given."""

    kind: ParameterKind
    choices: tuple[Value, ...] = ()
    low: float = 0
    high: float = 0
    points: int | None = None

    def grid(self) -> tuple[Value, ...]:
        """Return the values of a grid, in rising order, or in the order of the choices.

        Raises
        ------
        ValueError
            If a range has no `points`.
        """
        if self.kind is ParameterKind.CHOICE:
            return self.choices
        if self.points is None:
            raise ValueError(
                f"a grid needs points of a range: {{{self.kind}: [{self.low:g}, {self.high:g}], points: 8}}"
            )
        if self.kind is ParameterKind.INT:
            return _whole_points(int(self.low), int(self.high), self.points)
        inner = (np.geomspace if self.kind is ParameterKind.LOG else np.linspace)(self.low, self.high, self.points)[
            1:-1
        ]
        return (self.low, *(float(f"{value:.{_DIGITS}g}") for value in inner.tolist()), self.high)

    def take(self, value: Any) -> Value:
        """Return a value of a user as one of this parameter; `ValueError` if it is none."""
        if self.kind is ParameterKind.CHOICE:
            if not any(type(choice) is type(value) and choice == value for choice in self.choices):
                raise ValueError(f"{_shown(value)} is none of its choices")
            return value  # type: ignore[no-any-return]
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not self.low <= value <= self.high:
            raise ValueError(f"{_shown(value)} is not in [{self.low:g}, {self.high:g}]")
        if self.kind is not ParameterKind.INT:
            return float(value)
        if value != int(value):
            raise ValueError(f"{_shown(value)} is not a whole number")
        return int(value)

    def draw(self, generator: np.random.Generator) -> Value:
        """Return a value, uniform over the choices, the range, or the logarithm of the range."""
        if self.kind is ParameterKind.CHOICE:
            return self.choices[int(generator.integers(len(self.choices)))]
        if self.kind is ParameterKind.INT:
            return int(generator.integers(int(self.low), int(self.high), endpoint=True))
        if self.kind is ParameterKind.LOG:
            value = math.exp(generator.uniform(math.log(self.low), math.log(self.high)))
        else:
            value = float(generator.uniform(self.low, self.high))
        return min(max(value, self.low), self.high)


def parse_parameter(record: Any) -> Parameter:
    """Return the parameter that a mapping describes.

    Raises
    ------
    ValueError
        One line that says what is wrong and what to write, without the parameter's name.
    """
    if not isinstance(record, Mapping):
        raise ValueError(f"must be a mapping, {_FORMS} (is {_shown(record)})")  # noqa: TRY004 - pydantic takes this one
    kinds = [kind for kind in _KINDS if kind in record]
    if len(kinds) != 1:
        what = f"has {' and '.join(kinds)}; keep one" if kinds else f"has no kind; write {_FORMS}"
        raise ValueError(what)
    kind = kinds[0]
    if extra := [name for name in record if name not in (kind, "points")]:
        raise ValueError(f"{str(extra[0])[:_MOST_CHARACTERS]} is not known; write {_FORMS}, and points")
    values = record[kind]
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise ValueError(f"{kind} must be a list (is {_shown(values)})")  # noqa: TRY004 - as above
    if kind is ParameterKind.CHOICE:
        if record.get("points") is not None:
            raise ValueError("points are for int, uniform and log; leave them out: a grid takes every choice")
        return Parameter(kind, choices=_choices(values))
    low, high = _ends(kind, values)
    points = _points(record.get("points"))
    if points is not None and kind is ParameterKind.INT and points > high - low + 1:
        raise ValueError(f"points is {points}, and there are {high - low + 1} whole numbers; give at most as many")
    parameter = Parameter(kind, low=low, high=high, points=points)
    if points is not None and len(dict.fromkeys(parameter.grid())) < points:
        raise ValueError(f"points is {points}, and the range is too narrow for as many; give fewer")
    return parameter


def check_names(names: Sequence[Any]) -> None:
    """Refuse names of parameters that a setting cannot have.

    Raises
    ------
    ValueError
        One line that names the parameter.
    """
    if not names:
        raise ValueError("is empty; give at least one parameter, as in {alpha: {log: [1.0e-5, 1.0e-1], points: 8}}")
    if len(names) > _MOST_PARAMETERS:
        raise ValueError(f"has {len(names)} parameters; at most {_MOST_PARAMETERS} are searched")
    for name in names:
        if not isinstance(name, str) or not name.isprintable() or name.strip() != name or not name:
            raise ValueError(f"{name!r} is not a name of a parameter; write letters without blanks around them")
        if len(name) > _MOST_CHARACTERS:
            raise ValueError(f"{name[:20]}… has {len(name)} characters; a name has at most {_MOST_CHARACTERS}")


def grid_size(space: Mapping[str, Parameter]) -> int:
    """Return the number of settings of the grid; `ValueError` that names the parameter whose range has no points."""
    return math.prod(len(_named_grid(name, parameter)) for name, parameter in space.items())


def grid(space: Mapping[str, Parameter]) -> tuple[Params, ...]:
    """Return every setting of the grid; the last parameter changes fastest.

    Raises
    ------
    ValueError
        If a range has no points, or there are more than `MOST_TRIALS` settings; names the parameter.
    """
    if (size := grid_size(space)) > MOST_TRIALS:
        raise ValueError(f"the grid has {size} settings; at most {MOST_TRIALS} are tried: give fewer points")
    return tuple(
        dict(zip(space, values, strict=True))
        for values in itertools.product(*(parameter.grid() for parameter in space.values()))
    )


def setting_of(space: Mapping[str, Parameter], values: Mapping[str, Any]) -> Params:
    """Return values of a user as a whole setting, in the order of the space.

    Raises
    ------
    ValueError
        If a parameter is missing, unknown, or its value is none of those that it may have; names the parameter.
    """
    if missing := [name for name in space if name not in values]:
        raise ValueError(f"{missing[0]} is missing")
    if unknown := [name for name in values if name not in space]:
        raise ValueError(f"{unknown[0]} is not a parameter of the space")
    try:
        taken = None
        setting = {}
        for taken, parameter in space.items():
            setting[taken] = parameter.take(values[taken])
    except ValueError as error:
        raise ValueError(f"{taken}: {error}") from None
    return setting


def setting_key(params: Mapping[str, Value]) -> tuple[tuple[str, str, Value], ...]:
    """Return what is equal for equal settings alone: 1, 1.0 and true are three values."""
    return tuple((name, type(value).__name__, value) for name, value in sorted(params.items()))


def draw(space: Mapping[str, Parameter], seed: int, number: int) -> Params:
    """Return the random setting of trial `number`: the same for the same seed, whatever other trials were drawn."""
    generator = np.random.default_rng([seed, number])
    return {name: parameter.draw(generator) for name, parameter in space.items()}


def _named_grid(name: str, parameter: Parameter) -> tuple[Value, ...]:
    try:
        return parameter.grid()
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _whole_points(low: int, high: int, points: int) -> tuple[int, ...]:
    """Return whole numbers at even distances; exact, which floats above 2^53 are not."""
    return tuple(low + (2 * part * (high - low) + points - 1) // (2 * (points - 1)) for part in range(points))


def _choices(values: Sequence[Any]) -> tuple[Value, ...]:
    if not values:
        raise ValueError("choice is empty; give at least one value")
    if len(values) > MOST_TRIALS:
        raise ValueError(f"choice has {len(values)} values; at most {MOST_TRIALS} are tried")
    for value in values:
        if value is not None and not isinstance(value, str | bool | int | float):
            raise ValueError(f"choice holds {_shown(value)}; a value is a text, a number, true, false or null")
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"choice holds {value}; give finite numbers")
        if isinstance(value, str) and len(value) > _MOST_CHARACTERS:
            raise ValueError(f"choice holds a text of {len(value)} characters; at most {_MOST_CHARACTERS}")
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _MOST_INT:
            raise ValueError("choice holds a whole number beyond 2^62; give smaller ones")
    seen: set[tuple[type, Value]] = set()
    for value in values:
        if (type(value), value) in seen:
            raise ValueError(f"choice holds {_shown(value)} twice; keep one")
        seen.add((type(value), value))
    return tuple(values)


def _ends(kind: ParameterKind, values: Sequence[Any]) -> tuple[float, float]:
    example = {
        ParameterKind.INT: "[1, 10]",
        ParameterKind.UNIFORM: "[0.0, 1.0]",
        ParameterKind.LOG: "[1.0e-5, 1.0e-1]",
    }[kind]
    if len(values) != 2:
        raise ValueError(f"{kind} must be the lowest and the highest value, as in {example} (is {_shown(values)})")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float) or not -math.inf < value < math.inf:
            raise ValueError(f"{kind} must be two numbers, as in {example} (is {_shown(values)})")
        if abs(value) > _MOST_INT:
            raise ValueError(f"{kind} goes beyond 2^62; give smaller numbers")
        if kind is ParameterKind.INT and not isinstance(value, int):
            raise ValueError(f"int must be two whole numbers, as in {example} (is {_shown(values)})")
    low, high = values if kind is ParameterKind.INT else (float(value) for value in values)
    if low >= high:
        raise ValueError(f"{kind} must be the lowest and the highest value, as in {example} (is {_shown(values)})")
    if kind is ParameterKind.LOG and low <= 0:
        raise ValueError(f"log must begin above 0, as in {example} (is {_shown(values)})")
    return low, high


def _points(points: Any) -> int | None:
    if points is None:
        return None
    if isinstance(points, bool) or not isinstance(points, int) or not 2 <= points <= MOST_TRIALS:
        raise ValueError(f"points must be a whole number from 2 to {MOST_TRIALS} (is {_shown(points)})")
    return points


def _shown(value: Any) -> str:
    text = repr(list(value) if isinstance(value, tuple) else value)
    return text if len(text) <= 60 else f"{text[:60]}…"
