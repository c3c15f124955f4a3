"""Adapters of low rank on a frozen base, by hand: only what is trained travels.

Run: proteus train lora_net:Adapted --code docs/examples/lora_net.py --data digits --nodes r=1,t=3
with --param start_from=FILE for a base from a file of its `state_dict`.
"""

import torch
from torch import nn

from proteus_spot.nets import TorchNet


class Adapter(nn.Module):
    """A frozen linear layer, and a product of two narrow ones that is added to it."""

    def __init__(self, base, rank):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, base.in_features) / base.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x):
        """Return the layer's output."""
        return self.base(x) + x @ self.down.T @ self.up.T


class Adapted(TorchNet):
    """A perceptron of which the adapters and the last layer are trained."""

    local_steps, batch_size, rank = 20, 32, 4

    def model(self):
        """Return the module."""
        return nn.Sequential(Adapter(nn.Linear(64, 512), self.rank), nn.ReLU(), nn.Linear(512, 10))

    def optimizer(self, parameters):
        """Return the inner optimiser."""
        return torch.optim.AdamW(parameters, lr=3e-3)

    def loss(self, model, batch):
        """Return the mean loss of a batch."""
        return nn.functional.cross_entropy(model(batch["x"]), batch["y"])
