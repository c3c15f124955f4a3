"""Update rules: the textbook's numbers, whatever the shards and the form of an update; bad rules are refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from proteus_spot.psengine.config import Adam, Add, JobError, Momentum, Nesterov, Replace, Sgd, TableSpec
from proteus_spot.psengine.tables import update_rules
from proteus_spot.psengine.tables.row_updates import RowDelta
from proteus_spot.psengine.tables.sharding import Arrays
from proteus_spot.psengine.tables.update_rules import (
    advance_tables,
    drop_optimizer_state,
    init_optimizer_state,
    memory_tables,
)

ROWS, COLS, CLOCKS = 50, 3, 6
RULES = (Sgd(0.3), Momentum(0.1, 0.7), Nesterov(0.7, 0.9), Nesterov(0.7, 0), Adam(0.01, 0.8, 0.99, 1e-6), Replace())
GRADIENTS = np.random.default_rng(1).standard_normal((CLOCKS, ROWS, COLS)).astype(np.float32)
GRADIENTS[:, 10:30] = 0.0


def textbook(rule: Any) -> np.ndarray:
    """Return the table after the clocks, in double precision and by the formulas as they are printed."""
    w, v, m, s = (np.zeros((ROWS, COLS)) for _ in range(4))
    for t, g in enumerate(GRADIENTS.astype(np.float64), 1):
        match rule:
            case Sgd(step):
                w = w - step * g
            case Momentum(step, momentum):
                v = momentum * v + g
                w = w - step * v
            case Nesterov(lr, momentum):
                v = momentum * v - g
                w = w - lr * (momentum * v - g)
            case Replace():
                w = g
            case Adam(step, beta1, beta2, epsilon):
                m = beta1 * m + (1 - beta1) * g
                s = beta2 * s + (1 - beta2) * g**2
                w = w - step * (m / (1 - beta1**t)) / (np.sqrt(s / (1 - beta2**t)) + epsilon)
    return w


def after(table: TableSpec, updates: list[Any], rows: slice = slice(0, ROWS)) -> Arrays:
    state = init_optimizer_state([table], {"w": np.zeros((ROWS, COLS), table.dtype)[rows]})
    for update in updates:
        before = {name: array.tobytes() for name, array in state.items()}
        next_state = advance_tables([table], state, {} if update is None else {"w": update})
        assert {name: array.tobytes() for name, array in state.items()} == before, "what was handed out is not written"
        state = next_state
    return state


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_does_what_its_textbook_says(rule: Any) -> None:
    wide, narrow = (TableSpec("w", ROWS, COLS, kind, rule=rule) for kind in ("float64", "float32"))
    np.testing.assert_allclose(after(wide, list(GRADIENTS))["w"], textbook(rule), rtol=1e-12, atol=1e-15)
    single = after(narrow, list(GRADIENTS))
    np.testing.assert_allclose(single["w"], textbook(rule), rtol=1e-4, atol=1e-6)
    assert all(array.dtype == (np.int64 if "count" in name else np.float32) for name, array in single.items())


@pytest.mark.parametrize("rule", RULES)
def test_the_bits_depend_neither_on_the_shards_nor_on_the_form_of_an_update(
    rule: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = TableSpec("w", ROWS, COLS, rule=rule)
    full = after(table, list(GRADIENTS))
    runs = [RowDelta(slice(0, 10), g[:10]) for g in GRADIENTS]
    by_run = after(table, runs)
    first = after(table, [g[:10] for g in GRADIENTS], slice(0, 10))
    others = np.r_[0:10, 30:ROWS]
    by_rows = after(table, [RowDelta(others, g[others].astype(np.float64)) for g in GRADIENTS])
    monkeypatch.setattr(update_rules, "_CACHED_BYTES", 40)
    in_chunks = after(table, list(GRADIENTS))
    for name, array in full.items():
        assert by_rows[name].tobytes() == in_chunks[name].tobytes() == array.tobytes()
        assert by_run[name][:10].tobytes() == first[name].tobytes() == array[:10].tobytes()


@pytest.mark.parametrize("rule", RULES)
def test_a_clock_that_names_the_table_counts_even_with_no_rows_and_any_other_does_not(rule: Any) -> None:
    table = TableSpec("w", ROWS, COLS, rule=rule)
    nothing = RowDelta(slice(0, 0), GRADIENTS[0][:0])
    zeros = np.zeros((ROWS, COLS), np.float32)
    some, same = (after(table, [GRADIENTS[0], update, GRADIENTS[1]]) for update in (nothing, zeros))
    left = after(table, [GRADIENTS[0], None, GRADIENTS[1]])
    assert {name: array.tobytes() for name, array in some.items()} == {n: a.tobytes() for n, a in same.items()}
    assert (left["w"].tobytes() == same["w"].tobytes()) is (isinstance(rule, Sgd | Replace) or rule == Nesterov(0.7, 0))


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_nesterov_is_what_torch_does_with_the_negated_changes(momentum: float) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed: `make torch`")
    w = torch.zeros(ROWS, COLS, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.7, momentum=momentum, nesterov=momentum > 0)
    for change in GRADIENTS:
        w.grad = torch.from_numpy(-change)
        optimizer.step()
    ours = after(TableSpec("w", ROWS, COLS, rule=Nesterov(0.7, momentum)), list(GRADIENTS))["w"]
    np.testing.assert_allclose(ours, w.detach().numpy(), rtol=1e-6, atol=1e-6)


def test_nesterov_without_momentum_at_rate_1_adds_the_sum() -> None:
    ours = after(TableSpec("w", ROWS, COLS, rule=Nesterov(1, 0)), list(GRADIENTS))["w"]
    assert ours.tobytes() == after(TableSpec("w", ROWS, COLS), list(GRADIENTS))["w"].tobytes()
    assert not memory_tables(TableSpec("w", ROWS, COLS, rule=Nesterov(0.7, 0)))


def test_notes_have_missing_partitions_count_as_the_mean_of_the_others_and_switch_the_rule_off() -> None:
    tables = (
        TableSpec("w", ROWS, COLS, rule=Nesterov(0.7, 0.9, "notes")),
        TableSpec("notes", ROWS, 2, rule=Replace()),
    )
    state = init_optimizer_state(
        tables, {"w": np.ones((ROWS, COLS), np.float32), "notes": np.zeros((ROWS, 2), np.float32)}
    )

    def moved(total: np.ndarray, *notes: int) -> Arrays:
        said = {"notes": np.tile(np.array(notes, np.float32), (ROWS, 1))} if notes else {}
        return advance_tables(tables, state, {"w": total, **said}, n_partitions=4)

    total = GRADIENTS[0]
    np.testing.assert_array_equal(moved(total, 1, 0)["w"], moved(total * np.float32(4 / 3))["w"])
    np.testing.assert_array_equal(moved(total, 0, 0)["w"], moved(total)["w"])
    np.testing.assert_array_equal(moved(total, 4, 0)["w"], moved(total)["w"])
    plain = moved(total, 1, 1)
    np.testing.assert_array_equal(plain["w"], state["w"] + total)
    assert not plain["w:velocity"].any()


def test_a_rule_keeps_its_memory_in_tables_of_as_many_rows() -> None:
    adam = TableSpec("w", ROWS, COLS, "float64", rule=Adam())
    assert memory_tables(adam) == (
        TableSpec("w:mean", ROWS, COLS, "float64"),
        TableSpec("w:square", ROWS, COLS, "float64"),
        TableSpec("w:count", ROWS, 1, "int64"),
    )
    assert not memory_tables(TableSpec("w", ROWS, COLS, "int16"))
    state = after(adam, [GRADIENTS[0]])
    assert list(drop_optimizer_state([adam], state)) == ["w"]
    assert init_optimizer_state([adam], state)["w:mean"] is state["w:mean"], "what is there stays"


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda: Sgd(-1.0), "Sgd: step is -1.0; want a number from 0 on"),
        (lambda: Sgd(True), "Sgd: step is True; want a number from 0 on"),
        (lambda: Momentum(0.1, 1.0), "Momentum: momentum is 1.0; want a number from 0 on and below 1"),
        (lambda: Nesterov(0.7, 1), "Nesterov: momentum is 1; want a number from 0 on and below 1"),
        (lambda: Adam(beta2=math.nan), "Adam: beta2 is nan; want a number from 0 on and below 1"),
        (
            lambda: TableSpec("w", 1, 1, rule="adam"),
            "table 'w': rule is 'adam'; want Add(), Sgd(), Momentum(), Nesterov(), Adam() or Replace()",
        ),
        (lambda: TableSpec("w", 1, 1, "int32", rule=Sgd(1)), "table 'w': rule Sgd needs dtype float32 or float64, not"),
        (
            lambda: TableSpec("w", 1, 1, own=True, rule=Sgd(1)),
            "table 'w': rule Sgd does not go with own=True; leave out",
        ),
    ],
)
def test_a_rule_that_cannot_be_is_refused_in_one_line(make: Any, line: str) -> None:
    with pytest.raises(JobError) as refused:
        make()
    assert str(refused.value).startswith(line)
    assert TableSpec("w", 1, 1, "int32", own=True).rule == Add()
