"""Local steps of a module of PyTorch."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import fsspec
import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.parameter import is_lazy

from proteus_spot.nets.layout import COLUMNS, PARAMETERS, ArrayLayout, Flat, Kind, NamedArray, gradients_of
from proteus_spot.nets.torch_methods import TorchMethods, collated
from proteus_spot.nets.torch_schedule import RateSchedule
from proteus_spot.nets.trainer import Arrays
from proteus_spot.psengine.apps.returned import wrong
from proteus_spot.psengine.telemetry.formatting import format_error

MODEL_FILE = "model.safetensors"


class TorchTrainer:
    """Takes the local steps of all workers of a process in one module.

    Parameters
    ----------
    net : TorchMethods
    """

    def __init__(self, net: TorchMethods) -> None:
        self._net = net
        self._device = torch.device(net.device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self._settle(net.job_seed)
        self._model = _checked_model(net).to(self._device)
        if net.start_from:
            _start_from(net, self._model)
        self._trained = {name: each for name, each in self._model.named_parameters() if each.requires_grad}
        #: What is in tables: what is trained, and the buffers that the model's file holds.
        self._tensors = {**self._trained, **_kept_buffers(self._model)}
        self._layout = ArrayLayout([_entry(name, each, name in self._trained) for name, each in self._tensors.items()])
        self._first = {each.name: _to_array(self._tensors[each.name], each.dtype) for each in self._layout.entries}
        self._optimizer = _checked_optimizer(net, list(self._trained.values()))
        self._schedule = RateSchedule(self._scheduled)
        #: The data of the last task, and the data set made of it.
        self._data: tuple[Arrays, Any] = {}, None
        #: The arrays of the data set, and how often each had been written to when it was made.
        self._arrays: dict[str, tuple[torch.Tensor, int]] = {}
        self._before: Arrays = {}
        #: Names of the parameters that have had a gradient.
        self._reached: set[str] = set()

    @property
    def layout(self) -> ArrayLayout:
        """The arrays of the net."""
        return self._layout

    def first(self) -> Mapping[str, NDArray[Any]]:
        """Return the arrays as the module was made."""
        return self._first

    def count(self, data: Arrays) -> int:
        """Return the length of the data set of a partition."""
        found = len(self._dataset(data))
        if not found:
            raise wrong(self._net.examples, "examples: a partition has none; want fewer workers, or more data")
        return found

    def begin(self, tables: Arrays, moments: Arrays, data: Arrays, seed: int) -> None:
        """Begin a task of a worker."""
        self._settle(seed)
        self._load(tables)
        self._before = tables
        self._model.train()
        self._optimizer.state.clear()
        parameters = list(self._trained.values())
        for name, array in moments.items():
            number, kind, key = name.split(":", 2)
            parameter = parameters[int(number)]
            self._optimizer.state[parameter][key] = _moment(kind, array, parameter)
        self._dataset(data)

    def step(self, number: int, batches: Sequence[NDArray[np.int64]]) -> float:
        """Take a step; return the mean loss of its batches."""
        loss = self._go_back(batches)
        self._step(number)
        return loss

    def step_by(self, number: int, gradients: Arrays) -> None:
        """Take a step with these gradients."""
        for entry in self._layout.entries:
            if entry.kind == PARAMETERS:
                parameter = self._trained[entry.name]
                rows = gradients[gradients_of(entry.table)].reshape(-1)[self._layout.places[entry.table][entry.name]]
                found = torch.from_numpy(rows.reshape(entry.shape).copy())
                parameter.grad = found.to(parameter.device, parameter.dtype)
        self._step(number)

    def gradients(self, number: int, batches: Sequence[NDArray[np.int64]]) -> tuple[float, Flat]:
        """Return the mean loss of the batches, and its gradients."""
        del number
        loss = self._go_back(batches)
        found: Flat = {table.name: np.zeros((table.n_rows, COLUMNS), table.dtype) for table in self._layout.gradients}
        for entry in self._layout.entries:
            if entry.kind == PARAMETERS and (gradient := self._trained[entry.name].grad) is not None:
                flat = found[gradients_of(entry.table)].reshape(-1)
                flat[self._layout.places[entry.table][entry.name]] = _to_array(gradient, entry.dtype).reshape(-1)
        return loss, found

    def _go_back(self, batches: Sequence[NDArray[np.int64]]) -> float:
        """Leave the mean gradients of batches in the parameters; return their mean loss."""
        self._optimizer.zero_grad(set_to_none=True)
        total = 0.0
        for rows in batches:
            batch = self._on_device(collated(self._data[1], rows.tolist()))
            with self._autocast():
                loss = _checked_loss(self._net, self._net.loss(self._model, batch))
            with _named(self._net.loss, "loss: backward()"):
                (loss / len(batches)).backward()
            total += float(loss.detach())
        if len(self._reached) < len(self._trained):
            self._reached |= {name for name, each in self._trained.items() if each.grad is not None}
        return total / len(batches)

    def _step(self, number: int) -> None:
        self._schedule.set(self._optimizer, number)
        if self._net.clip_norm is not None:
            nn.utils.clip_grad_norm_(self._trained.values(), self._net.clip_norm)
        with _named(self._net.optimizer, "optimizer: step()"):
            self._optimizer.step()

    def end(self) -> tuple[Flat, dict[str, NDArray[Any]]]:
        """Return the tables and the moments after the steps."""
        self._check_reached()
        self._check_unwritten()
        after: Flat = {}
        for table, rows in self._before.items():
            flat = np.zeros(rows.shape, rows.dtype)
            for name, place in self._layout.places[table].items():
                flat.reshape(-1)[place] = _to_array(self._tensors[name], str(rows.dtype)).reshape(-1)
            after[table] = flat
        return after, self._moments() if self._net.moments == "keep" else {}

    def evaluate(self, tables: Arrays, heldout: Arrays) -> dict[str, Any]:
        """Return what the net's `evaluate` returns."""
        with self._asked(tables):
            return self._net.evaluate(self._model, self._on_device(_as_tensors(heldout)))

    def predict(self, tables: Arrays, arrays: Arrays) -> NDArray[Any]:
        """Return what the net's `predict` returns."""
        with self._asked(tables):
            found = self._net.predict(self._model, self._on_device(_as_tensors(arrays)))
        return found.detach().cpu().numpy() if isinstance(found, torch.Tensor) else np.asarray(found)

    def files(self, tables: Arrays) -> Mapping[str, bytes]:
        """Return the file of the model, with the names of its `state_dict`."""
        self._load(tables)
        state = {name: each.detach().cpu().clone().contiguous() for name, each in self._model.state_dict().items()}
        return {MODEL_FILE: safetensors.torch.save(state)}

    def of_files(self, files: Mapping[str, bytes]) -> Flat:
        """Return the tables of a model's file."""
        self._model.load_state_dict(safetensors.torch.load(files[MODEL_FILE]))
        return self._layout.flat(
            {each.name: _to_array(self._tensors[each.name], each.dtype) for each in self._layout.entries}
        )

    # -- the module -------------------------------------------------------------------------------------------------

    def _settle(self, seed: int) -> None:
        """Seed torch, and set what else of the process decides the bits."""
        torch.set_num_threads(self._net.threads)
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.manual_seed(seed)

    def _load(self, tables: Arrays) -> None:
        with torch.no_grad():
            for entry, array in self._layout.named(tables):
                self._tensors[entry.name].copy_(torch.from_numpy(np.array(array)))

    @contextmanager
    def _asked(self, tables: Arrays) -> Iterator[None]:
        self._settle(self._net.job_seed)
        self._load(tables)
        self._model.eval()
        with torch.no_grad(), self._autocast():
            yield

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self._device.type, torch.bfloat16, enabled=self._net.precision == "bf16")

    def _dataset(self, data: Arrays) -> Any:
        if self._data[0] is not data:
            arrays = _as_tensors(data)
            self._data = data, self._net.examples(dict(arrays))
            self._arrays = {name: (each, each._version) for name, each in arrays.items()}
        return self._data[1]

    def _on_device(self, batch: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {name: each.to(self._device) for name, each in batch.items()}

    def _scheduled(self) -> tuple[torch.optim.Optimizer, Any]:
        optimizer = self._net.optimizer(list(self._trained.values()))
        scheduler = self._net.schedule(optimizer)
        if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
            raise wrong(self._net.schedule, "schedule: ReduceLROnPlateau wants a loss; want rates that depend on steps")
        return optimizer, scheduler

    def _check_reached(self) -> None:
        if missing := [name for name in self._trained if name not in self._reached]:
            text = f"loss: parameter {missing[0]!r} has no gradient: use it, or set its requires_grad to False"
            raise wrong(self._net.loss, text)
        known = self._trained.keys()
        for name, each in self._model.named_parameters():
            if each.requires_grad and name not in known:
                raise wrong(self._net.model, f"model: parameter {name!r} was made in forward: make it in model()")

    def _check_unwritten(self) -> None:
        """Refuse a data set, or a loss, that writes to the data: a task that is repeated would find others."""
        for name, (each, version) in self._arrays.items():
            if each._version != version:
                method = self._net.loss if self._net.examples_are_rows else self._net.examples
                raise wrong(method, f"{method.__name__}: array {name!r} of the data is written in place: want a copy")

    def _moments(self) -> dict[str, NDArray[Any]]:
        """Return the optimiser's state as arrays, by ``NUMBER:TYPE:KEY``: parameter, type of the value."""
        found: dict[str, NDArray[Any]] = {}
        for number, parameter in enumerate(self._trained.values()):
            for key, value in self._optimizer.state.get(parameter, {}).items():
                if isinstance(value, torch.Tensor):
                    plain = value.detach().cpu()
                    plain = plain.view(torch.int16) if value.dtype == torch.bfloat16 else plain
                    found[f"{number}:{value.dtype}:{key}"] = plain.numpy().copy()
                elif type(value) in _PLAIN:
                    found[f"{number}:{type(value).__name__}:{key}"] = np.asarray(value)
                elif value is not None:
                    text = f"optimizer: its state {key!r} is a {type(value).__name__}: set moments = 'reset'"
                    raise wrong(self._net.optimizer, text)
        return found


_PLAIN = (bool, int, float)


def _moment(kind: str, array: NDArray[Any], parameter: torch.Tensor) -> Any:
    for plain in _PLAIN:
        if kind == plain.__name__:
            return plain(array)
    tensor = torch.from_numpy(np.array(array))
    tensor = tensor.view(torch.bfloat16) if kind == "torch.bfloat16" else tensor
    return tensor.to(parameter.device) if tensor.ndim else tensor


def _entry(name: str, tensor: torch.Tensor, trained: bool) -> NamedArray:
    kind: Kind = "parameters" if trained else "buffers"
    if not tensor.is_floating_point():
        return NamedArray(name, "counts", tuple(tensor.shape), "int64")
    return NamedArray(name, kind, tuple(tensor.shape), "float64" if tensor.dtype == torch.float64 else "float32")


def _to_array(tensor: torch.Tensor, dtype: str) -> NDArray[Any]:
    """Return a copy of a tensor as an array of a type that holds its numbers."""
    found: NDArray[Any] = tensor.detach().to("cpu", getattr(torch, dtype)).numpy().copy()
    return found


@contextmanager
def _named(method: Any, what: str) -> Iterator[None]:
    """Give what torch raises where no code of the user's runs, such as memory that is exhausted, the user's place."""
    try:
        yield
    except RuntimeError as error:
        raise wrong(method, f"{what}: {format_error(error)}") from error


def _as_tensors(arrays: Arrays) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}


def _kept_buffers(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return the buffers that `state_dict` has; others are made again by `model`."""
    kept = model.state_dict(keep_vars=True)
    return {name: each for name, each in model.named_buffers() if name in kept}


def _checked_model(net: TorchMethods) -> nn.Module:
    model = net.model()
    if not isinstance(model, nn.Module):
        raise wrong(net.model, f"model: returns a {type(model).__name__}: want a torch.nn.Module")
    parameters = dict(model.named_parameters())
    for name, each in parameters.items():
        if is_lazy(each):
            raise wrong(net.model, f"model: parameter {name!r} is lazy: give the layer its sizes")
        if each.is_complex() or each.is_sparse:
            raise wrong(net.model, f"model: parameter {name!r} is {each.dtype}, {each.layout}: want dense floats")
    if not any(each.requires_grad for each in parameters.values()):
        raise wrong(net.model, "model: has no parameter with requires_grad: nothing would be trained")
    return model


def _checked_optimizer(net: TorchMethods, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    optimizer = net.optimizer(parameters)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise wrong(net.optimizer, f"optimizer: returns a {type(optimizer).__name__}: want a torch.optim.Optimizer")
    closure = inspect.signature(type(optimizer).step).parameters.get("closure")
    if closure is not None and closure.default is closure.empty:
        raise wrong(net.optimizer, f"optimizer: {type(optimizer).__name__} wants a closure: want another one")
    return optimizer


def _checked_loss(net: TorchMethods, loss: Any) -> torch.Tensor:
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        found = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
        raise wrong(net.loss, f"loss: returns {found}: want the mean of the batch, a tensor of one number")
    if not loss.requires_grad:
        raise wrong(net.loss, "loss: does not depend on any parameter that is trained")
    return loss.reshape(())


def _start_from(net: TorchMethods, model: nn.Module) -> None:
    """Load the parameters that a training begins with."""
    with fsspec.open(net.start_from, "rb") as file:
        if net.start_from.endswith(".safetensors"):
            state = safetensors.torch.load(file.read())
        else:
            state = torch.load(file, map_location="cpu", weights_only=True)
    model.load_state_dict(state)
