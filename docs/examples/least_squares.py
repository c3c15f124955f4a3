"""One linear model in three ways: an application, a driver of its own, and partitions with state.

Run: python docs/examples/least_squares.py
"""

import numpy as np

from proteus_spot import Driver, TableSpec, Task, Work
from proteus_spot.psengine.single_process import drive_alone, initial, train_alone


class LeastSquares:
    """Linear regression by gradient descent: each partition adds its part of the step."""

    def __init__(self, n_inputs, n_examples, step=0.5):
        self.n_inputs, self.n_examples, self.step = n_inputs, n_examples, step

    def tables(self):
        """Return the one table."""
        return (TableSpec("weights", self.n_inputs, 1, "float64"),)

    def initial(self, table, rows, rng):
        """Return zeros."""
        return np.zeros((rows[1] - rows[0], 1))

    def prepare(self, arrays):
        """Return inputs and targets."""
        return arrays["x"], arrays["y"]

    def run(self, data, params, clock):
        """Add this partition's part of the gradient step."""
        x, y = data
        error = x @ params["weights"][:, 0] - y
        change = -self.step / self.n_examples * (x.T @ error)
        return Work({"weights": change[:, None]}, float(error @ error), len(y))

    def evaluate(self, params, heldout):
        """Return the mean squared error."""
        x, y = self.prepare(heldout)
        return {"mse": float(np.mean((x @ params["weights"][:, 0] - y) ** 2))}


class Halves(Driver):
    """Run every second partition in each group, until the loss of all is small."""

    def start(self, to, partitions, seed):
        """Dispatch the first group."""
        self.partitions, self.losses = partitions, {}
        self._dispatch(to, 1)

    def completed(self, to, done):
        """Keep the loss of the partition."""
        self.losses[done.task.partition] = done.loss

    def committed(self, to, group):
        """End the job, or dispatch the next group."""
        if len(self.losses) == self.partitions and sum(self.losses.values()) < 1e-6:
            to.finish(group, "the loss is below 1e-6")
        else:
            self._dispatch(to, group + 1)

    def _dispatch(self, to, group):
        for partition in range(group % 2, self.partitions, 2):
            to.dispatch(Task(partition, group, args={"step": 0.8}))
        to.seal(group)

    def snapshot(self):
        """Return all that the driver knows."""
        return self.partitions, dict(self.losses)

    def restore(self, state):
        """Take that over."""
        self.partitions, losses = state
        self.losses = dict(losses)


class Gradient:
    """The executor of one partition; it has no state."""

    def __init__(self, data, scale):
        (self.x, self.y), self.scale = data, scale

    def run(self, args, params, rng):
        """Step by the size that the driver has sent."""
        error = self.x @ params.get("weights")[:, 0] - self.y
        change = -args["step"] * self.scale * (self.x.T @ error)
        params.add("weights", change[:, None])
        return None, float(error @ error), len(self.y)


class Alternating(LeastSquares):
    """The same tables and data under this driver."""

    def driver(self):
        """Return the driver."""
        return Halves()

    def executor(self, data, partition, n_partitions):
        """Return the executor of a partition."""
        return Gradient(data, 2 / self.n_examples)


class Averaged:
    """The executor of one partition; its state is the last gradient of each block of its examples."""

    def __init__(self, data, n_blocks, n_partitions, step):
        self.x, self.y = (np.array_split(array, n_blocks) for array in data)
        self.last, self.share = np.zeros((n_blocks, data[0].shape[1])), step / n_partitions

    def run(self, args, params, rng):
        """Step along the mean of the last gradients, and replace that of one block."""
        block = int(rng.integers(len(self.last)))
        x, y = self.x[block], self.y[block]
        error = x @ params.get("weights")[:, 0] - y
        gradient = x.T @ error
        params.add("weights", -self.share * params.get("gradient"))
        params.add("gradient", (gradient - self.last[block])[:, None])
        self.last = self.last.copy()  # the snapshot of the last task has the old array
        self.last[block] = gradient
        return None, float(error @ error), len(y)

    def snapshot(self):
        """Return the state; its array is never written again."""
        return {"last": self.last}

    def restore(self, state):
        """Take a state over."""
        self.last = state["last"]


class StochasticAverage(LeastSquares):
    """Stochastic average gradient: the sum of the last gradients of all blocks is a table."""

    def tables(self):
        """Return the weights and the sum of all last gradients."""
        return tuple(TableSpec(name, self.n_inputs, 1, "float64") for name in ("weights", "gradient"))

    def executor(self, data, partition, n_partitions):
        """Return the executor of a partition."""
        return Averaged(data, 10, n_partitions, self.step / self.n_examples)


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 3))
    y = x @ np.array([1.0, -2.0, 0.5])
    app = LeastSquares(n_inputs=3, n_examples=400)
    slices = np.array_split(np.arange(400), 4)
    partitions = [app.prepare({"x": x[rows], "y": y[rows]}) for rows in slices]
    model = train_alone(app, partitions, initial(app, seed=0), clocks=30)
    print(model["weights"][:, 0].round(4))

    app = Alternating(n_inputs=3, n_examples=400)
    model, losses = drive_alone(app, partitions, initial(app, seed=0), groups=1000)
    print(len(losses), model["weights"][:, 0].round(4))

    app = StochasticAverage(n_inputs=3, n_examples=400, step=0.1)
    model = train_alone(app, partitions, initial(app, seed=0), clocks=600)
    print(model["weights"][:, 0].round(4))
