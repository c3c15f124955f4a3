"""YAML and JSON files that a user writes: every value means what it looks like, and no key is given twice.

YAML is read by the core schema of YAML 1.2. By YAML 1.1, which PyYAML follows, ``1:30`` is the number 90, ``010`` is 8,
``yes`` is true and ``2016-04-01`` is a date.
"""

import json
import re
from typing import Any, ClassVar

import yaml

from proteus_spot.infra.errors import InputError
from proteus_spot.infra.files import Source, read_text

_CORE = "tag:yaml.org,2002:"
#: The scalars of the core schema that are no text, and the characters that each begins with. A merge (``<<``) is no
#: part of the schema; it changes the meaning of no value.
_SCALARS = (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", "~nN\0"),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", "-+0123456789"),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+.0123456789",
    ),
    ("merge", r"<<", "<"),
)  # fmt: skip
#: Digits of an integer. Python refuses to read one of more than 4300.
_MOST_DIGITS = 400
#: Values of a file, each alias counted as what it stands for.
_MOST_VALUES = 100_000


class _Fault(yaml.constructor.ConstructorError):
    """YAML that is well written, and is not taken."""


class _CoreLoader(yaml.SafeLoader):
    """The core schema of YAML 1.2, and faults where the reader of PyYAML takes something silently."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML looks for it in the class
    yaml_constructors: ClassVar[dict[str | None, Any]] = {
        f"{_CORE}{kind}": yaml.SafeLoader.yaml_constructors[f"{_CORE}{kind}"] for kind in ("null", "bool", "seq", "map")
    } | {None: yaml.SafeLoader.yaml_constructors[None]}

    def get_single_data(self) -> Any:
        node = self.get_single_node()
        if node is None:
            return None
        _count_values(node, {})
        return self.construct_document(node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag not in (f"{_CORE}str", f"{_CORE}merge"):
                raise _fault("a key is not text; write it in quotes", key)
            if key.value in seen:
                raise _fault(f"{key.value} is given twice; keep one", key)
            seen.add(key.value)
        return super().construct_mapping(node, deep)

    def construct_text(self, node: yaml.ScalarNode) -> str:
        text = self.construct_scalar(node)
        if any("\ud800" <= letter <= "\udfff" for letter in text) or "\0" in text:
            raise _fault("a text holds half a character or a zero; remove it", node)
        return text

    def construct_whole_number(self, node: yaml.ScalarNode) -> int:
        text = self.construct_scalar(node)
        if len(text) > _MOST_DIGITS:
            raise _fault("is a number of too many digits", node)
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))

    def construct_number(self, node: yaml.ScalarNode) -> float:
        return float(self.construct_scalar(node).lower().replace(".inf", "inf").replace(".nan", "nan"))


for _kind, _pattern, _begins in _SCALARS:
    _CoreLoader.add_implicit_resolver(
        f"{_CORE}{_kind}", re.compile(f"(?:{_pattern})$"), ["" if letter == "\0" else letter for letter in _begins]
    )
_CoreLoader.add_constructor(f"{_CORE}str", _CoreLoader.construct_text)
_CoreLoader.add_constructor(f"{_CORE}int", _CoreLoader.construct_whole_number)
_CoreLoader.add_constructor(f"{_CORE}float", _CoreLoader.construct_number)


def read_yaml(source: Source) -> Any:
    """Return the content of a YAML or JSON file: None, or texts, numbers, truth values, lists, mappings by text.

    Raises
    ------
    InputError
        If it cannot be read or is not YAML, or a key occurs twice; with the line.
    """
    text = read_text(source)
    try:
        return yaml.load(text, _CoreLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + 1}: " if mark is not None else ""
        problem = error.problem if isinstance(error, _Fault) else f"is not YAML: {error.problem or error.context}"
        raise InputError(f"{source}: {line}{problem}") from None
    except yaml.reader.ReaderError as error:
        row = text.count("\n", 0, error.position) + 1
        raise InputError(f"{source}: line {row}: is not YAML: it holds a control character; remove it") from None
    except (ValueError, KeyError):
        raise InputError(f"{source}: is not YAML: a tag (!!) does not fit its value; leave the tag out") from None
    except RecursionError:
        raise InputError(f"{source}: is nested too deeply; write it flat") from None


def read_json(source: Source) -> Any:
    """Return what a JSON file holds.

    Raises
    ------
    InputError
        If the file cannot be read.
    ValueError
        If it is not JSON, or an object has a key twice; says why, without the name of the file.
    """
    try:
        return json.loads(read_text(source), object_pairs_hook=unique_keys)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON from its pairs; `ValueError` if a key occurs twice."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"{key} is given twice; keep one")
        found[key] = value
    return found


def _count_values(node: yaml.Node, counted: dict[int, int | None]) -> int:
    """Return how many values a node holds, aliases counted in full; a node within itself is a fault."""
    if id(node) in counted:
        count = counted[id(node)]
        if count is None:
            raise _fault("an alias stands for what it is in; write it out", node)
        return count
    counted[id(node)] = None
    count = 1
    if isinstance(node, yaml.SequenceNode):
        count += sum(_count_values(each, counted) for each in node.value)
    elif isinstance(node, yaml.MappingNode):
        count += sum(_count_values(value, counted) for _, value in node.value)
    if count > _MOST_VALUES:
        raise _fault(f"holds more than {_MOST_VALUES} values", node)
    counted[id(node)] = count
    return count


def _fault(problem: str, node: yaml.Node) -> "_Fault":
    return _Fault(None, None, problem, node.start_mark)
