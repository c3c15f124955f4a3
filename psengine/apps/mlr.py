"""Multinomial logistic regression, on the inputs as they are or on random Fourier features of them.

The features are computed again every clock from the raw inputs: a partition then costs a node the memory of its inputs
and no more, and the projection, seeded alike on all nodes, never travels. Inputs that are mostly zeros come as
compressed rows and stay so.

Source: Proteus (EuroSys 2017), 6.2 (MLR); Rahimi and Recht (NIPS 2007) for the features.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proteus_spot.psengine.apps import kernel_cache as kernels
from proteus_spot.psengine.apps.base import Work
from proteus_spot.psengine.apps.csr import Csr, inputs
from proteus_spot.psengine.apps.parameter_checks import check_above, check_from, check_truth, check_whole
from proteus_spot.psengine.config import TableSpec
from proteus_spot.psengine.tables.row_sets import RowSet

F32 = NDArray[np.float32]

#: rows of the features that exist at one time; small enough for the cache, large enough for BLAS
_BLOCK = 512
#: A partition of compressed rows reads and writes only the weights of the columns that it has, if they are less than
#: this share.
_FEW = 0.5
#: The longest of the chosen steps is that of clock 2 ** this.
_MOST_TWOS = 7
_KERNELS = "proteus_spot.psengine.apps.csr_kernels"


@dataclass(frozen=True)
class MlrData:
    """One partition: inputs (n, n_inputs) float32, dense or compressed rows, and labels (n,) int64.

    Attributes
    ----------
    rows : int64 or None
        The rows of `weights` that it has to do with, in ascending order, the constant's last; the columns of `x` are
        then those of these rows. None: all of them.
    """

    x: F32 | Csr
    y: NDArray[np.int64]
    rows: NDArray[np.int64] | None = None


class MultinomialLogisticRegression:
    """Softmax regression by gradient steps.

    Without `batch`, a clock is one step along the gradient of all examples: the sum over partitions of their shares.
    With it, each partition goes once through its examples, in steps of a few, from the model of the clock before, and
    the model becomes the mean of where they end, weighted by examples. That needs far fewer clocks; the fewer and
    larger the partitions, the fewer.

    Parameters
    ----------
    n_inputs, n_classes, n_examples : int
        Of the whole training set; the gradient is scaled by 1 / n_examples.
    features : int
        Number of random Fourier features of the kernel exp(-gamma |a - b|^2); 0 uses the inputs themselves.
    gamma : float
        Width of that kernel.
    step, decay : float
        The step of clock c is step / (1 + decay * (c - 1)), along the mean gradient of its examples. Without `step`, it
        is chosen (see Notes) where `input_curvature` is given and there is neither `batch` nor `decay`, else 1.
    batch : int
        Examples of a step within a task; 0 for one step a clock.
    l2 : float
        Weight of the penalty l2 / 2 * |W|^2, the constant row left out.
    feature_seed : int
        Of the projection.
    standardize : bool
        Whether each input is shifted by its mean and divided by its standard deviation; inputs in compressed rows are
        only divided, so that what is zero stays so.
    staleness_aware : bool
        Whether the steps of a task are divided by 1 + the number of clocks before its own whose updates may be
        missing in the model that it reads.
    input_mean, input_sd : sequence of float, shape (n_inputs,)
        Of the whole training set; computed if `standardize` is set (`infra.datasets.examples`).
    input_curvature : float
        Bound of the eigenvalues of the standardized inputs' covariance, computed with them; 0: unknown.

    Notes
    -----
    Table `weights` is (dimensions + 1, n_classes); the last row belongs to a constant input of 1.

    Chosen steps are (1 + r ** (v - 1)) / L, with r = 1 + sqrt(2), v how often 2 divides the clock, and L half of the
    curvature, plus `l2`: softmax has no larger one. They converge on any data, and faster than equal ones; the loss may
    rise for a clock after a long one. None is longer than that of clock 128.

    Source: Altschuler and Parrilo, "Acceleration by Stepsize Hedging II" (2023), for the chosen steps; Böhning,
    "Multinomial Logistic Regression Algorithm" (1992), for L; for `batch`, Zinkevich, Weimer, Li and Smola (NIPS 2010),
    parallelised SGD; McMahan et al. (AISTATS 2017) for the mean after every pass; for `staleness_aware`, Litz (2017),
    section 2.2, and Zhang et al. (IJCAI 2016).
    Differs: the mean is taken at every clock, by the servers, as the sum of what the partitions add.
    """

    predicts = "class"
    clocks_per_pass = 1

    def __init__(
        self,
        n_inputs: int,
        n_classes: int,
        n_examples: int,
        *,
        features: int = 0,
        gamma: float = 1.0,
        step: float | None = None,
        decay: float = 0.0,
        l2: float = 0.0,
        batch: int = 0,
        feature_seed: int = 0,
        standardize: bool = False,
        staleness_aware: bool = False,
        input_mean: Sequence[float] | float = (),
        input_sd: Sequence[float] | float = (),
        input_curvature: float = 0.0,
    ) -> None:
        check_truth(standardize=standardize, staleness_aware=staleness_aware)
        check_whole(0, features=features, feature_seed=feature_seed, batch=batch)
        check_above(0, gamma=gamma, step=1.0 if step is None else step)
        check_from(0, decay=decay, l2=l2)
        self.n_inputs, self.n_classes, self.n_examples = n_inputs, n_classes, n_examples
        self.features, self.gamma = features, gamma
        self.decay, self.l2, self.batch = decay, l2, batch
        self.step = 1.0 if step is None else step
        chosen = step is None and standardize and not (batch or decay or features)
        self._curvature = 0.5 * input_curvature + l2 if chosen and input_curvature else 0.0
        self.standardize, self.staleness_aware = standardize, staleness_aware
        self._mean = np.asarray(input_mean, np.float32)
        self._inverse_sd = (1.0 / np.asarray(input_sd, np.float64)).astype(np.float32)
        self._projection: tuple[F32, F32] | None = None
        if features:
            rng = np.random.default_rng([feature_seed, 20070103])
            omega = rng.standard_normal((n_inputs, features)) * np.sqrt(2.0 * gamma)
            phase = rng.uniform(0.0, 2.0 * np.pi, features)
            self._projection = omega.astype(np.float32), phase.astype(np.float32)

    def tables(self) -> tuple[TableSpec, ...]:
        """Return the one table, `weights`."""
        return (TableSpec("weights", (self.features or self.n_inputs) + 1, self.n_classes),)

    def initial(self, table: TableSpec, rows: tuple[int, int], rng: np.random.Generator) -> F32:
        """Return zeros: the problem is convex."""
        del rng
        return np.zeros((rows[1] - rows[0], table.n_cols), np.float32)

    def prepare(self, arrays: Mapping[str, NDArray[np.generic]]) -> MlrData:
        """Return inputs and labels; raise ValueError that names what does not fit."""
        data = self._checked(arrays)
        if isinstance(data.x, Csr):
            kernels.load(_KERNELS)  # compiled here, and not under a clock
            if not (self.features or self.l2):  # the penalty is on all weights
                columns = np.unique(data.x.indices).astype(np.int64)
                if len(columns) < _FEW * self.n_inputs:
                    return MlrData(data.x.of(columns), data.y, np.append(columns, self.n_inputs))
        return data

    def rows(self, data: MlrData, clock: int) -> dict[str, RowSet]:
        """Return the rows of `weights` that a partition reads and writes, where that is not all."""
        del clock
        return {} if data.rows is None else {"weights": data.rows}

    def _checked(self, arrays: Mapping[str, NDArray[np.generic]]) -> MlrData:
        x = inputs(arrays)
        if "y" not in arrays:
            raise ValueError(f"the partition has no array 'y', only {sorted(arrays)}")
        y = np.ascontiguousarray(arrays["y"], np.int64)
        if len(x.shape) != 2 or x.shape[1] != self.n_inputs or y.shape != x.shape[:1]:
            raise ValueError(f"x {x.shape} and y {y.shape}: wanted (n, {self.n_inputs}) and (n,)")
        if len(y) and (y.min() < 0 or y.max() >= self.n_classes):
            raise ValueError(f"labels from {y.min()} to {y.max()}: wanted 0 to {self.n_classes - 1}")
        return MlrData(self._scaled(x), y)

    def _scaled(self, x: F32 | Csr) -> F32 | Csr:
        """Return inputs on one scale, where that was asked for; each value depends on itself alone, on any node."""
        if not self.standardize:
            return x
        if self._mean.shape != (self.n_inputs,) or self._inverse_sd.shape != (self.n_inputs,):
            raise ValueError(
                f"standardize: input_mean has shape {self._mean.shape} and input_sd {self._inverse_sd.shape}, wanted "
                f"({self.n_inputs},): the data set says them"
            )
        if isinstance(x, Csr):
            return Csr(x.data * self._inverse_sd[x.indices], x.indices, x.indptr, x.n_cols)
        scaled: F32 = (x - self._mean) * self._inverse_sd
        return scaled

    def run(self, data: MlrData, params: Mapping[str, NDArray[np.generic]], clock: int, staleness: int = 0) -> Work:
        """Return what this partition adds to the model, and its cross-entropy, of each example before its step.

        Parameters
        ----------
        params : mapping
            `weights`, shape (rows of the partition, n_classes): all rows, or those that `rows` names.
        staleness : int
            Number of clocks before this one whose updates may be missing in `params`.
        """
        weights = np.asarray(params["weights"], np.float32)
        step = self._step(clock)
        if self.staleness_aware:
            step /= 1.0 + staleness
        if self.batch:
            return self._pass(data, weights, step)
        gradient = np.zeros(weights.shape, np.float32)
        loss = 0.0
        for low in range(0, len(data.y), _BLOCK):
            z = self._expand(data.x[low : low + _BLOCK])
            y = data.y[low : low + _BLOCK]
            residual, of_block = _residual(z, y, weights)
            loss += of_block
            _add_transposed_times(gradient[:-1], z, residual)
            gradient[-1] += residual.sum(axis=0)
        gradient /= np.float32(self.n_examples)
        if self.l2:
            gradient[:-1] += np.float32(self.l2 * len(data.y) / self.n_examples) * weights[:-1]
        gradient *= np.float32(-step)
        return Work({"weights": gradient}, loss, len(data.y))

    def _step(self, clock: int) -> float:
        if not self._curvature:
            return self.step / (1.0 + self.decay * (clock - 1))
        twos = min((clock & -clock).bit_length() - 1, _MOST_TWOS)
        silver: float = 1.0 + (1.0 + math.sqrt(2.0)) ** (twos - 1)
        return silver / self._curvature

    def _pass(self, data: MlrData, weights: F32, step: float) -> Work:
        """Go once through the examples in steps of `batch`; the update is this partition's part of the mean."""
        model, loss = weights.copy(), 0.0
        for low in range(0, len(data.y), self.batch):
            z, y = self._expand(data.x[low : low + self.batch]), data.y[low : low + self.batch]
            residual, of_batch = _residual(z, y, model)
            loss += of_batch
            residual *= np.float32(-step / len(y))
            if self.l2:
                model[:-1] *= np.float32(1.0 - step * self.l2)
            _add_transposed_times(model[:-1], z, residual)
            model[-1] += residual.sum(axis=0)
        model -= weights
        model *= np.float32(len(data.y) / self.n_examples)
        return Work({"weights": model}, loss, len(data.y))

    def evaluate(
        self, params: Mapping[str, NDArray[np.generic]], heldout: Mapping[str, NDArray[np.generic]]
    ) -> dict[str, float]:
        """Return `accuracy` (a share) and mean cross-entropy `loss` (in nats); ValueError where arrays do not fit."""
        data = self._checked(heldout)
        log_p = self._log_p(data.x, params["weights"])
        return {
            "accuracy": float((log_p.argmax(axis=1) == data.y).mean()),
            "loss": float(-log_p[np.arange(len(data.y)), data.y].mean(dtype=np.float64)),
        }

    def predict(
        self, params: Mapping[str, NDArray[np.generic]], arrays: Mapping[str, NDArray[np.generic]]
    ) -> NDArray[np.int64]:
        """Return the likeliest class of each example, shape (n,), from 0; ValueError where the inputs do not fit."""
        x = inputs(arrays)
        if len(x.shape) != 2 or x.shape[1] != self.n_inputs:
            raise ValueError(f"x {x.shape}: wanted (n, {self.n_inputs})")
        classes: NDArray[np.int64] = self._log_p(self._scaled(x), params["weights"]).argmax(axis=1)
        return classes

    def _log_p(self, x: F32 | Csr, weights: NDArray[Any]) -> F32:
        """Return the logarithm of each class's probability, shape (n, n_classes)."""
        log_p = np.empty((x.shape[0], self.n_classes), np.float32)
        for low in range(0, len(log_p), _BLOCK):
            log_p[low : low + _BLOCK] = _log_softmax(_logits(self._expand(x[low : low + _BLOCK]), weights))
        return log_p

    def _expand(self, x: F32 | Csr) -> F32 | Csr:
        if self._projection is None:
            return x
        omega, phase = self._projection
        z = _times(x, omega)
        z += phase
        np.cos(z, out=z)
        z *= np.float32(np.sqrt(2.0 / self.features))
        return z


def _residual(z: F32 | Csr, y: NDArray[np.int64], weights: NDArray[Any]) -> tuple[F32, float]:
    """Return each class's probability less 1 for the true one, shape (n, n_classes), and the summed cross-entropy."""
    log_p, rows = _log_softmax(_logits(z, weights)), np.arange(len(y))
    loss = -float(log_p[rows, y].sum(dtype=np.float64))
    residual: F32 = np.exp(log_p)
    residual[rows, y] -= 1.0
    return residual, loss


def _logits(z: F32 | Csr, weights: NDArray[Any]) -> F32:
    out = _times(z, weights[:-1])
    out += weights[-1]
    return out


def _times(x: F32 | Csr, matrix: NDArray[Any]) -> F32:
    if isinstance(x, Csr):
        kernels.load(_KERNELS)
        from proteus_spot.psengine.apps.csr_kernels import times

        return times(x, matrix)
    product: F32 = x @ matrix
    return product


def _add_transposed_times(out: F32, x: F32 | Csr, right: F32) -> None:
    if isinstance(x, Csr):
        kernels.load(_KERNELS)
        from proteus_spot.psengine.apps.csr_kernels import add_transposed_times

        add_transposed_times(out, x, right)
    else:
        out += x.T @ right


def _log_softmax(logits: F32) -> F32:
    logits -= logits.max(axis=1, keepdims=True)
    logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return logits
