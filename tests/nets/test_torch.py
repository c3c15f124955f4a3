"""Modules of PyTorch: bare DiLoCo bit for bit, synchronous training at one local step, faults as one line."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from proteus_spot.psengine.apps.base import NodeBroken
from proteus_spot.psengine.apps.registry import resolve
from proteus_spot.psengine.config import JobError
from proteus_spot.psengine.single_process import initial, train_alone
from proteus_spot.psengine.tables.allowed_values import WrongValue
from proteus_spot.psengine.tables.tree_sum import tree_sum

torch = pytest.importorskip("torch", reason="torch is not installed: `make torch`")
safetensors_torch = pytest.importorskip("safetensors.torch")

from tests.support import torch_nets
from tests.support.torch_nets import EXAMPLES, All, K, Plain

NAME, GROUPS, SEED = torch_nets.__name__, 5, 3


def partition(worker: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(worker)
    x = rng.integers(0, 11, (EXAMPLES, 3))
    return {"x": x.astype(np.uint8), "y": x.sum(axis=1).astype(np.int16) % 11}


PARTS = [partition(worker) for worker in range(K)]


def trained(app: Any, groups: int = GROUPS) -> dict[str, np.ndarray]:
    return train_alone(app, [app.prepare(part) for part in PARTS], initial(app, SEED, 3), groups, seed=SEED)


def file_of(app: Any, tables: dict[str, np.ndarray]) -> bytes:
    model = {name: rows for name, rows in tables.items() if ":" not in name}
    return app.model_files(model)["model.safetensors"]


def place(worker: int, number: int) -> int:
    epoch, at = divmod(number, EXAMPLES)
    return int(np.random.default_rng([SEED, worker, epoch]).permutation(EXAMPLES)[at])


def batch_of(worker: int, numbers: range) -> dict[str, Any]:
    rows = [place(worker, number) for number in numbers]
    return {name: torch.from_numpy(array[rows].astype(np.int64)) for name, array in PARTS[worker].items()}


def share(changes: list[Any], part: tuple[int, int]) -> Any:
    return changes[part[0]] if part[1] - part[0] == 1 else None


def bare_diloco(net: All) -> dict[str, Any]:
    """Return the `state_dict` after the clocks; each worker has a model, an optimiser and a scheduler of its own."""
    torch.manual_seed(SEED)
    state = net.model().state_dict()
    models = [net.model() for _ in range(K)]
    optimizers = [net.optimizer([p for p in model.parameters() if p.requires_grad]) for model in models]
    schedules = [net.schedule(optimizer) for optimizer in optimizers]
    trained_names = [name for name, p in models[0].named_parameters() if p.requires_grad]
    velocity = {name: np.zeros(state[name].shape, np.float32) for name in trained_names}
    shared = [*trained_names, "norm.running_mean", "norm.running_var", "scale"]
    done = 0
    mean: dict[str, Any] = {}
    for group in range(1, GROUPS + 1):
        warm = group <= net.warm_steps
        steps = 1 if warm else net.local_steps - done % net.local_steps
        changes = []
        for worker, model in enumerate(models):
            parameters = [p for p in model.parameters() if p.requires_grad]

            def move(worker: int = worker, parameters: list[Any] = parameters) -> None:
                torch.nn.utils.clip_grad_norm_(parameters, 0.7)
                optimizers[worker].step()
                schedules[worker].step()

            model.load_state_dict(state)
            model.train()
            torch.manual_seed(int(np.random.default_rng([SEED, group, worker]).integers(1 << 62)))
            if mean:
                for name, p in model.named_parameters():
                    p.grad = torch.from_numpy(mean[name]) if name in mean else None
                move()
            for step in range(done, done + steps):
                optimizers[worker].zero_grad()
                for half in range(2):
                    batch = batch_of(worker, range(step * 8 + half * 4, step * 8 + half * 4 + 4))
                    (net.loss(model, batch) / 2).backward()
                if not warm:
                    move()
            after = model.state_dict()
            changes.append(
                {name: np.atleast_1d((after[name] - state[name]).numpy()) / np.float32(K) for name in shared}
                | (
                    {
                        f"grad {n}": p.grad.numpy() / np.float32(K)
                        for n, p in zip(trained_names, parameters, strict=True)
                    }
                )
            )
        done += steps
        total: Any = tree_sum((0, K), partial(share, changes))
        mean = {name: total[f"grad {name}"] for name in trained_names} if warm else {}
        new = {name: tensor.clone() for name, tensor in models[0].state_dict().items()}
        for name in shared:
            before, change = state[name].numpy(), total[name].reshape(state[name].shape)
            if warm and name in velocity:  # of all workers the same
                change = new[name].numpy() - before
            elif name in velocity:
                m, lr = np.float32(net.outer.momentum), np.float32(net.outer.lr)
                velocity[name] = m * velocity[name] - change
                change = -(lr * (m * velocity[name] - change))
            new[name] = torch.from_numpy(np.asarray(before + change))
        new["out.weight"] = new["names.weight"]
        state = new
    return state


def test_a_module_with_all_that_torch_has_is_bare_diloco_bit_for_bit() -> None:
    app = resolve(f"{NAME}:All", {"job_seed": SEED})
    found = safetensors_torch.load(file_of(app, trained(app)))
    bare = bare_diloco(All())
    assert sorted(found) == sorted(bare)
    differing = [name for name in bare if not torch.equal(found[name], bare[name])]
    assert not differing
    assert "frozen.weight" in found
    assert sum(table.n_rows for table in app.tables() if table.name == "parameters") == 1, "frozen ones do not travel"


def test_the_saved_model_is_loaded_by_two_lines_without_proteus() -> None:
    app = resolve(f"{NAME}:All", {"job_seed": SEED})
    tables = trained(app, 1)
    model = torch_nets.Everything()
    model.load_state_dict(safetensors_torch.load(file_of(app, tables)))
    x = torch.from_numpy(PARTS[0]["x"].astype(np.int64))
    with torch.no_grad():
        ours = app.predict(tables, {"x": PARTS[0]["x"].astype(np.int64)})
        np.testing.assert_array_equal(model.eval()(x).numpy(), ours)
    again = app.tables_of_files({"model.safetensors": file_of(app, tables)})
    assert all(np.array_equal(again[name], tables[name]) for name in again)


def test_one_local_step_of_sgd_is_synchronous_training_with_a_batch_of_all_workers() -> None:
    app = resolve(f"{NAME}:Plain", {"job_seed": SEED})
    found = safetensors_torch.load(file_of(app, trained(app, 30)))
    net = Plain()
    torch.manual_seed(SEED)
    model = net.model()
    optimizer = net.optimizer(list(model.parameters()))
    for step in range(30):
        batches = [batch_of(worker, range(step * 5, step * 5 + 5)) for worker in range(K)]
        optimizer.zero_grad()
        net.loss(model, {name: torch.cat([batch[name] for batch in batches]) for name in ("x", "y")}).backward()
        optimizer.step()
    for name, tensor in model.state_dict().items():
        np.testing.assert_allclose(found[name].numpy(), tensor.numpy(), atol=1e-5)


def test_processes_have_the_bits_of_one_and_end_with_the_node() -> None:
    alone, apart = (resolve(f"{NAME}:All", {"job_seed": SEED}) for _ in range(2))
    apart.enter_node(2, apart.prepare(PARTS[0]))
    try:
        assert file_of(apart, trained(apart)) == file_of(alone, trained(alone))
    finally:
        apart.leave_node()


def test_memory_that_is_exhausted_in_forward_is_one_line_with_its_place() -> None:
    app = resolve(f"{NAME}:Faulty", {"fault": "memory"})
    with pytest.raises(WrongValue, match=r"^torch_nets.py:\d+: OutOfMemoryError: CUDA out of memory. Tried"):
        trained(app)


@pytest.mark.parametrize("apart", [False, True])
def test_what_a_method_raises_is_one_line_with_its_place(apart: bool) -> None:
    app = resolve(f"{NAME}:Faulty", {"fault": "raises"})
    if apart:
        app.enter_node(1, app.prepare(PARTS[0]))
    try:
        with pytest.raises(WrongValue, match=r"^torch_nets.py:\d+: KeyError: 'z'$"):
            trained(app)
    finally:
        app.leave_node()


def test_a_process_that_dies_is_the_nodes_failure_with_its_reason() -> None:
    app = resolve(f"{NAME}:Faulty", {"fault": "exit"})
    app.enter_node(1, app.prepare(PARTS[0]))
    try:
        with pytest.raises(NodeBroken, match="a process of a task has ended with signal 9"):
            trained(app)
    finally:
        app.leave_node()


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        ("lazy", "model: parameter '2.weight' is lazy: give the layer its sizes"),
        ("no module", "model: returns a list: want a torch.nn.Module"),
        ("frozen", "model: has no parameter with requires_grad"),
        ("unused", "loss: parameter 'spare' has no gradient"),
        ("closure", "optimizer: LBFGS wants a closure"),
        ("rows", r"loss: returns a tensor of shape \(5,\): want the mean of the batch"),
        ("number", "loss: returns float: want the mean of the batch, a tensor of one number"),
        ("memory back", r"loss: backward\(\): OutOfMemoryError: CUDA out of memory"),
        ("in place", r"loss: backward\(\): RuntimeError: one of the variables needed for gradient computation"),
        ("data", "examples: array 'x' of the data is written in place: want a copy"),
        ("apart", "loss: does not depend on any parameter that is trained"),
    ],
)
def test_what_cannot_work_is_one_line_with_the_method(fault: str, line: str) -> None:
    app = resolve(f"{NAME}:Faulty", {"fault": fault})
    with pytest.raises(WrongValue, match=line) as wrong:
        trained(app)
    assert wrong.value.place.startswith("torch_nets.py:")


def test_a_data_set_of_ones_own_says_no_pass() -> None:
    class Windows(Plain):
        def examples(self, arrays: Any) -> Any:
            return super().examples(arrays)

    assert Plain(n_examples=60).examples_are_rows
    assert not Windows(n_examples=60).examples_are_rows


def test_a_training_can_start_from_a_file(tmp_path: Any) -> None:
    torch.manual_seed(99)
    state = Plain().model().state_dict()
    safetensors_torch.save_file(state, tmp_path / "base.safetensors")
    torch.save(state, tmp_path / "base.pt")
    for name in ("base.safetensors", "base.pt"):
        app = resolve(f"{NAME}:Plain", {"start_from": str(tmp_path / name)})
        begun = safetensors_torch.load(file_of(app, initial(app, SEED, 2)))
        assert all(torch.equal(begun[each], state[each]) for each in state)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_model_learns_and_its_figures_are_loss_and_accuracy(precision: str) -> None:
    app = resolve(f"{NAME}:Plain", {"local_steps": 20, "precision": precision, "n_classes": 11})
    before, after = (app.evaluate(tables, PARTS[0]) for tables in (initial(app, SEED), trained(app, 10)))
    assert sorted(after) == ["accuracy", "loss"]
    assert after["loss"] < before["loss"] / 2
    assert (app.predict(initial(app, SEED), {"x": PARTS[0]["x"].astype(np.int64)}) < 11).all()


@pytest.mark.parametrize(
    ("params", "line"),
    [
        ({"precision": "fp16"}, "precision is 'fp16': want fp32 or bf16"),
        ({"clip_norm": 0}, "clip_norm is 0: want a number above 0"),
    ],
)
def test_settings_of_torch_are_checked(params: dict[str, Any], line: str) -> None:
    with pytest.raises(JobError, match=line):
        resolve(f"{NAME}:Plain", params)
