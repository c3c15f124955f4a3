"""What a user of PyTorch writes, and what it does by default."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import nn

from proteus_spot.nets.settings import NetSettings

Tensors = Mapping[str, torch.Tensor]

#: Examples that are evaluated or predicted at once.
EVALUATED_AT_ONCE = 256


class TorchMethods(NetSettings):
    """The methods of a `TorchNet`; `model`, `optimizer` and `loss` have to be written.

    A batch, and `arrays`, are tensors by name, one for each array of the data, whose first axis is the examples.

    Attributes
    ----------
    clip_norm : float or None
        Largest norm of a step's gradient; None: any.
    device : str
        As of torch; empty: cuda where a node has it, else cpu.
    precision : {"fp32", "bf16"}
        bf16 runs the model under autocast.
    start_from : str
        File of a `state_dict`, of safetensors or of torch, with which the training begins; empty: as `model` makes it.
    """

    in_processes: ClassVar[bool] = True

    clip_norm: float | None = None
    device: str = ""
    precision: Literal["fp32", "bf16"] = "fp32"
    start_from: str = ""

    # -- what a user writes ---------------------------------------------------------------------------------------

    def model(self) -> nn.Module:
        """Return the module; what is random in it is seeded."""
        raise NotImplementedError(f"{type(self).__name__} has no method model()")

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """Return the inner optimiser of these parameters."""
        raise NotImplementedError(f"{type(self).__name__} has no method optimizer(parameters)")

    def loss(self, model: nn.Module, batch: Tensors) -> torch.Tensor:
        """Return the mean loss of a batch."""
        raise NotImplementedError(f"{type(self).__name__} has no method loss(model, batch)")

    # -- what may be written --------------------------------------------------------------------------------------

    def schedule(self, optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler | None:
        """Return a scheduler that is stepped once a local step; None: the rates stay."""
        return None

    def examples(self, arrays: Tensors) -> Any:
        """Return a `torch.utils.data.Dataset` of the examples of a partition; each is a dict of tensors.

        By default an example is a row of each array.
        """
        return ArrayRows(arrays)

    def evaluate(self, model: nn.Module, arrays: Tensors) -> dict[str, Any]:
        """Return figures of merit on held-out examples: the loss, and the accuracy where `y` holds class numbers."""
        loss = right = answers = examples = 0.0
        for batch in self.batches(arrays):
            count = len(next(iter(batch.values())))
            loss += float(self.loss(model, batch)) * count
            examples += count
            outputs = _classes(model, batch)
            if outputs is not None:
                right += float((outputs == batch["y"]).sum())
                answers += batch["y"].numel()
        figures = {"loss": loss / examples}
        return figures | {"accuracy": right / answers} if answers else figures

    def predict(self, model: nn.Module, arrays: Tensors) -> torch.Tensor:
        """Return a value for each example: of `model(x)` the likeliest class where the net learns classes."""
        if "x" not in arrays:
            raise ValueError(f"the data have no array 'x' but {', '.join(arrays)}: write predict(model, arrays)")
        outputs = torch.cat([model(part) for part in arrays["x"].split(EVALUATED_AT_ONCE)])
        return outputs.argmax(-1) if self.n_classes and outputs.ndim > 1 else outputs

    # -----------------------------------------------------------------------------------------------------------------

    def batches(self, arrays: Tensors) -> Iterable[dict[str, torch.Tensor]]:
        """Return all examples in their order, in batches."""
        dataset = self.examples(arrays)
        for low in range(0, len(dataset), EVALUATED_AT_ONCE):
            yield collated(dataset, range(low, min(low + EVALUATED_AT_ONCE, len(dataset))))

    @property
    def examples_are_rows(self) -> bool:
        """Whether an example is a row of the data: a data set of one's own may have others."""
        return type(self).examples is TorchMethods.examples

    def check_settings(self) -> None:
        """Raise ValueError at the first setting that cannot be."""
        super().check_settings()
        if self.precision not in ("fp32", "bf16"):
            raise ValueError(f"precision is {self.precision!r}: want fp32 or bf16")
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise ValueError(f"clip_norm is {self.clip_norm!r}: want a number above 0")


class ArrayRows:
    """The rows of arrays as a data set; whole numbers arrive as int64."""

    def __init__(self, arrays: Tensors) -> None:
        self._arrays = dict(arrays)

    def __len__(self) -> int:
        return len(next(iter(self._arrays.values())))

    def __getitem__(self, row: Any) -> dict[str, torch.Tensor]:
        return {name: widened(array[row]) for name, array in self._arrays.items()}


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of whole numbers as int64, any other as it is."""
    whole = not tensor.is_floating_point() and not tensor.is_complex() and tensor.dtype != torch.bool
    return tensor.to(torch.int64) if whole else tensor


def collated(dataset: Any, rows: Iterable[int]) -> dict[str, torch.Tensor]:
    """Return examples of a data set as one batch."""
    if isinstance(dataset, ArrayRows):
        return dataset[torch.as_tensor(list(rows))]
    batch: dict[str, torch.Tensor] = torch.utils.data.default_collate([dataset[int(row)] for row in rows])
    return batch


def _classes(model: nn.Module, batch: Tensors) -> torch.Tensor | None:
    """Return the likeliest classes of a batch; None where `y` is none, or the model is not a function of `x` alone."""
    y = batch.get("y")
    if y is None or "x" not in batch or y.is_floating_point():
        return None
    try:
        outputs = model(batch["x"])
    except TypeError:  # it takes more than `x`
        return None
    if not isinstance(outputs, torch.Tensor) or outputs.shape[:-1] != y.shape:
        return None
    return outputs.argmax(-1)
