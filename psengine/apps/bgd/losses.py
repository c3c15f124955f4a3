"""Losses of linear models, and their derivatives by margin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]


@dataclass(frozen=True)
class LinearLoss:
    """A loss of the margins of a linear model.

    Attributes
    ----------
    name : str
    n_outputs : int
        Columns of the margins.
    terms : callable
        Maps margins (n, n_outputs) and targets (n,) to the summed loss and its derivative by margin, of their shape.
    """

    name: str
    n_outputs: int
    terms: Callable[[F64, NDArray[np.generic]], tuple[float, F64]]


def linear_loss(name: str, n_classes: int) -> LinearLoss:
    """Return a loss by name: ``logistic``, ``hinge`` or ``squared``.

    Parameters
    ----------
    n_classes : int
        Number of classes; ignored by ``squared``. With two, there is one margin, of class 1; with more, there is a
        margin a class, and ``logistic`` is the cross-entropy of their softmax, ``hinge`` one class against all others.

    Raises
    ------
    ValueError
        If there is no such loss, or fewer than two classes.
    """
    if name not in LOSSES:
        raise ValueError(f"loss is {name!r}; want one of {', '.join(LOSSES)}")
    if name == "squared":
        return LinearLoss(name, 1, squared_error)
    if n_classes < 2:
        raise ValueError(f"loss {name} wants labels of two classes or more; the data have {n_classes}")
    if n_classes == 2:
        return LinearLoss(name, 1, logistic if name == "logistic" else squared_hinge)
    return LinearLoss(name, n_classes, softmax if name == "logistic" else squared_hinge)


#: {name: meaning}, as in the help.
LOSSES = MappingProxyType(
    {"logistic": "logistic; softmax of several classes", "hinge": "squared hinge", "squared": "squared error"}
)


def logistic(margins: F64, targets: NDArray[np.generic]) -> tuple[float, F64]:
    """Return the logistic loss of margins (n, 1) and labels (n,) of 0 and 1, and its derivative."""
    signs = _signs(margins, targets)
    signed = signs * margins
    loss = np.logaddexp(0.0, -signed)
    return float(loss.sum()), -signs * np.exp(-signed - loss)


def softmax(margins: F64, targets: NDArray[np.generic]) -> tuple[float, F64]:
    """Return the cross-entropy of margins (n, classes) and labels (n,) from 0, and its derivative."""
    log_p = margins - margins.max(axis=1, keepdims=True)
    log_p -= np.log(np.exp(log_p).sum(axis=1, keepdims=True))
    examples, labels = np.arange(len(margins)), targets.astype(np.int64, copy=False)
    loss = -float(log_p[examples, labels].sum())
    slopes: F64 = np.exp(log_p)
    slopes[examples, labels] -= 1.0
    return loss, slopes


def squared_hinge(margins: F64, targets: NDArray[np.generic]) -> tuple[float, F64]:
    """Return the squared hinge loss max(0, 1 - sign * margin)^2 summed over examples and columns, and its derivative.

    One column: labels are 0 and 1. Several: in each column, the examples of its class are positive.
    """
    signs = _signs(margins, targets)
    short = np.maximum(0.0, 1.0 - signs * margins)
    return float((short * short).sum()), -2.0 * signs * short


def squared_error(margins: F64, targets: NDArray[np.generic]) -> tuple[float, F64]:
    """Return half of the squared difference of margins (n, 1) and targets (n,), and its derivative."""
    residual: F64 = margins - targets.astype(np.float64, copy=False)[:, None]
    return 0.5 * float((residual * residual).sum()), residual


def _signs(margins: F64, targets: NDArray[np.generic]) -> F64:
    labels = targets.astype(np.int64, copy=False)[:, None]
    positive = labels == (1 if margins.shape[1] == 1 else np.arange(margins.shape[1]))
    return np.where(positive, 1.0, -1.0)
