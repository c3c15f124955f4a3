"""A character-level transformer of 0.1 M parameters, and a text to learn from."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from proteus_spot.nets import Nesterov, TorchNet

_WORDS, _LENGTH, _SEED = 400, 400_000, 0


def generated_text() -> bytes:
    """Return a text of words that follow each other by a fixed table; a fresh clone has no other."""
    rng = np.random.default_rng(_SEED)
    words = ["".join(chr(97 + each) for each in rng.integers(0, 26, rng.integers(2, 9))) for _ in range(_WORDS)]
    follows = rng.integers(0, _WORDS, (_WORDS, 6))
    found, word, length = [], 0, 0
    while length < _LENGTH:
        found.append(words[word])
        length += len(words[word]) + 1
        word = int(follows[word, rng.integers(6)])
    return " ".join(found).encode()


class Windows(torch.utils.data.Dataset):  # type: ignore[misc]
    """The windows of a text that do not overlap."""

    def __init__(self, text: torch.Tensor, length: int) -> None:
        self._text, self._length = text, length

    def __len__(self) -> int:
        return (len(self._text) - 1) // self._length

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        window = self._text[number * self._length :][: self._length + 1].long()
        return {"x": window[:-1], "y": window[1:]}


class _Transformer(nn.Module):  # type: ignore[misc]
    def __init__(self, layers: int, width: int, context: int) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(128, width), nn.Embedding(context, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, 128)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(context), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.token(x) + self.place.weight
        return self.head(self.blocks(h, mask=self.mask, is_causal=True))


class Characters(TorchNet):
    """Two layers of width 64, context 32."""

    workers, local_steps, batch_size, clip_norm = 8, 25, 16, 1.0
    outer, warm_steps = Nesterov(1, 0), 0
    layers, width, context, rate, steps = 2, 64, 32, 0.006, 400

    def examples(self, arrays: Any) -> Windows:
        return Windows(arrays["text"], self.context)

    def model(self) -> nn.Module:
        return _Transformer(self.layers, self.width, self.context)

    def optimizer(self, parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, lr=self.rate)

    def schedule(self, optimizer: Any) -> Any:
        return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.steps)

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        return nn.functional.cross_entropy(model(batch["x"]).flatten(0, 1), batch["y"].flatten())


def parts_of(text: bytes, workers: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return a run of the text for each worker, and its last fifth, which is held out."""
    array = np.frombuffer(text, np.uint8)
    train, held = np.split(array, [len(array) * 4 // 5])
    return [{"text": part} for part in np.array_split(train, workers)], {"text": held}
