"""YAML by the core schema of YAML 1.2, JSON, and what is refused in them."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proteus_spot.infra.errors import InputError
from proteus_spot.infra.structured_text import read_json, read_yaml


def read(tmp_path: Path, text: str) -> Any:
    path = tmp_path / "a.yaml"
    path.write_bytes(text.encode())
    return read_yaml(path)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(
            (text, text)
            for text in ("1:30", "190:20:30", "1:30.5", "yes", "No", "on", "off", "y", "2016-04-01", "1_000")
        ),
        *(
            (text, text)
            for text in ("2016-04-01T12:00:00Z", "0b11", "0x", "0o8", "1e", ".", "+", "=", "1.2.3", "nul", "_")
        ),
        *((text, text == "true") for text in ("true", "false")),
        ("010", 10),
        ("0o10", 8),
        ("0x1F", 31),
        ("-7", -7),
        ("+3", 3),
        ("1e3", 1000.0),
        ("-.5", -0.5),
        ("6.", 6.0),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        ("1e309", math.inf),
        ("~", None),
        ("null", None),
        ("", None),
        ("'1'", "1"),
        ("!!str 1", "1"),
        ("[1, {a: 2.5}]", [1, {"a": 2.5}]),
    ],
)
def test_a_value_means_what_it_looks_like(tmp_path: Path, text: str, value: Any) -> None:
    found = read(tmp_path, f"a: {text}\n")["a"]
    assert (found, type(found)) == (value, type(value))


def test_not_a_number_is_one(tmp_path: Path) -> None:
    assert math.isnan(read(tmp_path, "a: .nan")["a"])


def test_a_merged_mapping_gives_what_is_not_given(tmp_path: Path) -> None:
    assert read(tmp_path, "a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\n")["b"] == {"x": 1, "y": 3}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: 1\nb: 2\na: 3\n", r"line 3: a is given twice; keep one"),
        ("a:\n  - {b: 1,\n     b: 1}\n", r"line 3: b is given twice; keep one"),
        ("a: 1\n1: 2\n", r"line 2: a key is not text; write it in quotes"),
        ("[a]: 2\n", r"line 1: a key is not text"),
        ("a: [\n", r"line \d: is not YAML: "),
        ("a: b: c\n", r"line 1: is not YAML: mapping values are not allowed here"),
        ("a: 1\n---\nb: 2\n", r"line 2: is not YAML: but found another document"),
        ("a: !!python/object:os.system {}\n", r"line 1: is not YAML: could not determine a constructor"),
        ("a: !!binary aGk=\n", r"line 1: is not YAML: could not determine a constructor"),
        ("a: !!int many\n", r"a tag \(!!\) does not fit its value"),
        ("a: !!bool maybe\n", r"a tag \(!!\) does not fit its value"),
        ("a: 1\nb: &b [*b]\n", r"line 2: an alias stands for what it is in"),
        ("a: 1\nb: \x07\n", r"line 2: is not YAML: it holds a control character"),
        ('a: "\\ud800"\n', r"line 1: a text holds half a character"),
        ("a: " + "9" * 5000, r"line 1: is a number of too many digits"),
        ("[" * 5000, r"is nested too deeply; write it flat"),
        (
            "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n"
            + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)),
            r"holds more than 100000 values",
        ),
    ],
)
def test_a_fault_is_one_line_with_its_place(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        read(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 'a.yaml'}: ")
    assert "\n" not in str(caught.value)


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**18), 10**18)
    | st.floats(allow_nan=False)
    | st.text(alphabet="aé1 :-"),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(alphabet="abc", min_size=1), each, max_size=3),
    max_leaves=8,
)


@given(value=_JSON.filter(lambda value: not isinstance(value, float) or math.isfinite(value)))
def test_json_is_yaml(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    text = json.dumps({"a": value})
    if "Infinity" not in text:
        assert read(tmp_path_factory.mktemp("json"), text) == {"a": value}


def test_json_with_a_key_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"a": 1, "b": {"c": 1, "c": 2}}')
    with pytest.raises(ValueError, match=r"^c is given twice; keep one$"):
        read_json(path)
    path.write_text('{"a": 1, "b": {"c": 1}}')
    assert read_json(path) == {"a": 1, "b": {"c": 1}}
    path.write_text("[" * 100_000)
    with pytest.raises(ValueError, match="nested too deeply"):
        read_json(path)
