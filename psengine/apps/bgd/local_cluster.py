"""Partitions in one process, under a tree whose nodes vanish and return: for tests and benchmarks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from proteus_spot.psengine.apps.bgd.master import ElasticMaster
from proteus_spot.psengine.apps.bgd.messages import Reply, Request
from proteus_spot.psengine.apps.bgd.partition import LinearPartition, LossAlongLine
from proteus_spot.psengine.apps.bgd.reduction_tree import ReductionTree

F64 = NDArray[np.float64]


class LocalCluster:
    """Nodes with a partition each, of which some are away.

    Parameters
    ----------
    partitions : sequence of LinearPartition
    timed : callable, optional
        Called as `timed(partition, work)`; it returns `work()`. A benchmark measures with it.

    Attributes
    ----------
    present : frozenset of int
        The nodes that have joined.
    """

    def __init__(
        self,
        partitions: Sequence[LinearPartition],
        timed: Callable[[int, Callable[[], Reply]], Reply] | None = None,
    ) -> None:
        self._partitions = partitions
        self._timed = timed or (lambda partition, work: work())
        self.present = frozenset(range(len(partitions)))
        self._tree = ReductionTree()
        self._tree.build(self.present)
        self._margins: dict[int, F64] = {}  # at the model of the round
        self._lines: dict[int, tuple[F64, LossAlongLine]] = {}  # with their directions

    def bring_up(self, nodes: Collection[int]) -> None:
        """Let nodes return."""
        self.present |= frozenset(nodes)
        self._tree.build(self.present)

    def answer(self, request: Request, vanishing: Collection[int] = ()) -> Reply:
        """Return the reduced answer to a request, during which `vanishing` nodes vanish before they contribute."""
        if request.follows_step:
            self._tree.commit()
        self.present -= frozenset(vanishing)
        if request.kind == "kept":
            return self._kept(request)
        answers = {
            node: self._timed(node, partial(self._answer_of, node, request))
            for node in sorted(request.partitions & self.present)
        }
        loss, slope = sum(one.loss for one in answers.values()), sum(one.slope for one in answers.values())
        if request.kind == "trial":
            return Reply(frozenset(answers), None, loss, slope)
        gradients = {node: one.gradient for node, one in answers.items() if one.gradient is not None}
        reduced = self._tree.reduce(self.present, gradients)
        self._tree.build(self.present)
        if reduced is None:
            return Reply(frozenset())
        return Reply(reduced.partitions, reduced.total, loss, slope)

    def _kept(self, request: Request) -> Reply:
        self._tree.build(self.present)
        total = self._tree.kept_sum(request.partitions)
        return Reply(frozenset()) if total is None else Reply(request.partitions, total)

    def _answer_of(self, node: int, request: Request) -> Reply:
        partition, only = self._partitions[node], frozenset([node])
        if request.kind == "trial":
            assert request.direction is not None
            direction, line = self._lines.get(node, (None, None))
            if line is None or direction is not request.direction:
                line = partition.line(self._margins[node], request.direction)
                self._lines[node] = (request.direction, line)
            return Reply(only, None, *line.at(request.step))
        margins = partition.margins(request.model)
        if request.kind == "gradient":
            self._margins[node] = margins
        loss, gradient = partition.gradient(request.model, margins)
        return Reply(only, gradient, loss)


def descend(
    master: ElasticMaster,
    cluster: LocalCluster,
    rounds: int,
    vanishing: Callable[[ElasticMaster], Collection[int]] = lambda master: (),
    free: Callable[[ElasticMaster], int] = lambda master: 0,
) -> None:
    """Let the master descend until it has made `rounds` steps, or finished, or waits for nodes that do not return.

    Parameters
    ----------
    vanishing : returns the nodes that vanish during the request that is about to be sent.
    free : returns the number of nodes that partitions can be brought up on before it.
    """
    while master.rounds < rounds and not master.finished:
        cluster.bring_up(master.restarts(cluster.present, free(master)))
        request = master.request(cluster.present)
        if request is None:
            return
        master.receive(cluster.answer(request, frozenset(vanishing(master)) & cluster.present))
