"""Nets of PyTorch for tests; they need torch."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from proteus_spot.nets import Nesterov, TorchNet

K, EXAMPLES = 4, 21


class Everything(nn.Module):
    """Dropout, batch norm, tied and frozen weights, an embedding, a buffer that only the module knows."""

    def __init__(self) -> None:
        super().__init__()
        self.names = nn.Embedding(11, 6)
        self.frozen = nn.Linear(6, 8).requires_grad_(False)
        self.norm, self.drop = nn.BatchNorm1d(8), nn.Dropout(0.3)
        self.back = nn.Linear(8, 6)
        self.out = nn.Linear(6, 11, bias=False)
        self.out.weight = self.names.weight
        self.register_buffer("scale", torch.tensor(0.5))
        self.register_buffer("hidden", torch.ones(3), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.drop(torch.relu(self.norm(self.frozen(self.names(x).mean(1)))))
        return self.out(self.back(h)) * self.scale


class All(TorchNet):
    workers, local_steps, warm_steps, batch_size, accumulate, clip_norm = K, 3, 2, 4, 2, 0.7
    outer = Nesterov(0.7, 0.9)

    def model(self) -> nn.Module:
        return Everything()

    def optimizer(self, parameters: Any) -> torch.optim.Optimizer:
        first, *others = parameters
        return torch.optim.AdamW([{"params": [first], "lr": 0.02}, {"params": others}], lr=0.01)

    def schedule(self, optimizer: Any) -> Any:
        return torch.optim.lr_scheduler.OneCycleLR(optimizer, [0.03, 0.02], total_steps=100)

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        return nn.functional.cross_entropy(model(batch["x"]), batch["y"])


class Plain(TorchNet):
    """Without anything random, and with the rules of synchronous data-parallel training."""

    workers, local_steps, batch_size, outer = K, 1, 5, Nesterov(1, 0)

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Embedding(11, 4), nn.Flatten(), nn.Linear(12, 11))

    def optimizer(self, parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.2)

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        return nn.functional.cross_entropy(model(batch["x"]), batch["y"])


class Faulty(Plain):
    """What cannot be trained, by the name of its fault."""

    fault = ""

    def model(self) -> Any:
        match self.fault:
            case "lazy":
                return nn.Sequential(nn.Embedding(11, 4), nn.Flatten(), nn.LazyLinear(11))
            case "no module":
                return [1]
            case "frozen":
                return super().model().requires_grad_(False)
            case "unused":
                model = super().model()
                model.spare = nn.Parameter(torch.zeros(3))
                return model
            case "exit":
                return Ends()
            case "memory back":
                return nn.Sequential(super().model(), Exhausts())
        return super().model()

    def examples(self, arrays: Any) -> Any:
        return Shrinks(arrays) if self.fault == "data" else super().examples(arrays)

    def optimizer(self, parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.LBFGS(parameters) if self.fault == "closure" else super().optimizer(parameters)

    def loss(self, model: nn.Module, batch: Any) -> Any:
        match self.fault:
            case "rows":
                return nn.functional.cross_entropy(model(batch["x"]), batch["y"], reduction="none")
            case "number":
                return 1.0
            case "apart":
                return torch.zeros(())
            case "raises":
                return model(batch["z"])
            case "memory":
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.")
            case "in place":
                weight = model[0].weight
                found = (weight * weight).sum()
                with torch.no_grad():
                    weight.mul_(2)
                return found
        return super().loss(model, batch)


class Ends(nn.Sequential):
    """Ends its process in a task, as the kernel does that has no memory left."""

    def __init__(self) -> None:
        super().__init__(nn.Embedding(11, 4), nn.Flatten(), nn.Linear(12, 11))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        import os
        import signal

        os.kill(os.getpid(), signal.SIGKILL)
        return x


class Shrinks(torch.utils.data.Dataset):
    """Scales its arrays once, which it may, and writes to them with each example, which it may not."""

    def __init__(self, arrays: Any) -> None:
        self.arrays = arrays
        arrays["x"].mul_(1)

    def __len__(self) -> int:
        return EXAMPLES

    def __getitem__(self, row: int) -> dict[str, torch.Tensor]:
        return {name: array[row].mul_(1).long() for name, array in self.arrays.items()}


class _NoMemory(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.")


class Exhausts(nn.Module):
    """Has no memory left when it goes back."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _NoMemory.apply(x)
