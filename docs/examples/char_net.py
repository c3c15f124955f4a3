"""A character-level transformer on any text file.

Run: proteus train char_net:Characters --code docs/examples/char_net.py --data some.txt --nodes r=1,t=3
"""

import torch
from torch import nn

from proteus_spot.nets import TorchNet


class Windows(torch.utils.data.Dataset):
    """The windows of a text that do not overlap: characters, and those that follow."""

    def __init__(self, text, length):
        self.text, self.length = text, length

    def __len__(self):
        """Return the number of windows."""
        return (len(self.text) - 1) // self.length

    def __getitem__(self, number):
        """Return a window."""
        window = self.text[number * self.length :][: self.length + 1].long()
        return {"x": window[:-1], "y": window[1:]}


class Transformer(nn.Module):
    """A decoder of characters (bytes)."""

    def __init__(self, layers, heads, width, context):
        super().__init__()
        self.token, self.place = nn.Embedding(256, width), nn.Embedding(context, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.1, "gelu", batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, 256, bias=False)
        self.head.weight = self.token.weight

    def forward(self, x):
        """Return the scores of the next character at each place."""
        length = x.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=x.device)
        h = self.token(x) + self.place(torch.arange(length, device=x.device))
        return self.head(self.blocks(h, mask=mask, is_causal=True))


class Characters(TorchNet):
    """A transformer that learns the next character."""

    layers, heads, width, context = 4, 4, 128, 64
    local_steps, warm_steps, batch_size, clip_norm = 25, 50, 16, 1.0
    rate, steps = 0.003, 1000

    def examples(self, arrays):
        """Return the windows of a text."""
        return Windows(arrays["text"], self.context)

    def model(self):
        """Return the module."""
        return Transformer(self.layers, self.heads, self.width, self.context)

    def optimizer(self, parameters):
        """Return the inner optimiser."""
        return torch.optim.AdamW(parameters, lr=self.rate, weight_decay=0.1)

    def schedule(self, optimizer):
        """Return the rates by step: they fall as a cosine."""
        return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.steps)

    def loss(self, model, batch):
        """Return the mean loss of a batch."""
        return nn.functional.cross_entropy(model(batch["x"]).flatten(0, 1), batch["y"].flatten())

    def predict(self, model, arrays):
        """Return the likeliest character after each one of a text, within its window."""
        x = arrays["text"].long()
        parts = [model(part[None])[0].argmax(-1) for part in x.split(self.context)]
        return torch.cat(parts)
