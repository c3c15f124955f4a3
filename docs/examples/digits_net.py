"""Handwritten digits by a perceptron of one hidden layer.

Run: proteus train digits_net:Digits --code docs/examples/digits_net.py --data digits --nodes r=1,t=3
"""

import torch
from torch import nn

from proteus_spot.nets import TorchNet


class Digits(TorchNet):
    """A perceptron of one hidden layer."""

    local_steps, batch_size = 20, 32

    def model(self):
        """Return the module."""
        return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))

    def optimizer(self, parameters):
        """Return the inner optimiser."""
        return torch.optim.AdamW(parameters, lr=1e-3)

    def loss(self, model, batch):
        """Return the mean loss of a batch: a dict of tensors, one key for each array of the data."""
        return nn.functional.cross_entropy(model(batch["x"]), batch["y"])
