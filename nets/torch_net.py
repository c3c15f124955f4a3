"""The class that a user of PyTorch inherits from."""

from __future__ import annotations

from proteus_spot.nets.net import Net
from proteus_spot.nets.torch_methods import TorchMethods
from proteus_spot.nets.torch_trainer import TorchTrainer


class TorchNet(TorchMethods, Net):
    """A module of PyTorch that is trained by DiLoCo; `model`, `optimizer` and `loss` have to be written."""

    def trainer(self) -> TorchTrainer:
        """Return what takes the local steps of the module."""
        return TorchTrainer(self)
