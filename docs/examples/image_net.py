"""A small residual network with batch norm on images, with a data set that shifts them at random.

The data are an .npz with `x` (examples, height, width; whole numbers to 255) and `y` (class numbers).
Run: proteus train image_net:Images --code docs/examples/image_net.py --data images.npz --nodes r=1,t=3
"""

import torch
from torch import nn

from proteus_spot.nets import TorchNet


class Shifted(torch.utils.data.Dataset):
    """Images, each moved by up to two pixels; torch's generator is seeded for each task."""

    def __init__(self, arrays):
        self.x, self.y = arrays["x"].float().unsqueeze(1) / 255, arrays["y"].long()

    def __len__(self):
        """Return the number of images."""
        return len(self.y)

    def __getitem__(self, number):
        """Return an image and its class."""
        moves = torch.randint(-2, 3, (2,)).tolist()
        return {"x": torch.roll(self.x[number], moves, (1, 2)), "y": self.y[number]}


class Block(nn.Module):
    """Two convolutions, and what went in."""

    def __init__(self, width):
        super().__init__()
        layers = [nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)]
        self.layers = nn.Sequential(
            *layers, nn.ReLU(), nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        )

    def forward(self, x):
        """Return the block's output."""
        return torch.relu(x + self.layers(x))


class Images(TorchNet):
    """A small residual network."""

    local_steps, batch_size, width, classes = 25, 32, 16, 10

    def examples(self, arrays):
        """Return the images; those that are evaluated are moved alike each time, as torch is seeded for that, too."""
        return Shifted(arrays)

    def model(self):
        """Return the module."""
        width = self.width
        return nn.Sequential(
            nn.Conv2d(1, width, 3, stride=2, padding=1),
            Block(width),
            nn.MaxPool2d(2),
            Block(width),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(width, self.classes),
        )

    def optimizer(self, parameters):
        """Return the inner optimiser."""
        return torch.optim.AdamW(parameters, lr=2e-3)

    def loss(self, model, batch):
        """Return the mean loss of a batch."""
        return nn.functional.cross_entropy(model(batch["x"]), batch["y"])

    def predict(self, model, arrays):
        """Return the class of each image."""
        x = arrays["x"].float().unsqueeze(1) / 255
        return torch.cat([model(part).argmax(-1) for part in x.split(256)])
