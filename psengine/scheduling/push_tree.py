"""The tree of pushes: which node adds up whose updates on their way to the servers.

| a node | then |
|---|---|
| has all of its partitions to do in a clock, each for the first time | it has a place in the tree (`TreePlace`) |
| has some of them, or does some again | it sends to the servers itself |
| does not hear of a child in time | it goes on without it, and the child sends to the servers itself |

An inner node adds up whole subtrees of the partitions only (`tree_sum`) and passes the rest on, so that the bits stay.
The node that sends to the servers reports the micro-tasks of all whose updates are in its sums, and the controller
completes all of them or none: if one was dispatched again meanwhile, so are the others. Servers replace sums as wholes.
"""

from __future__ import annotations

from collections.abc import Mapping

from psengine.membership.node_record import NodeRecord
from psengine.membership.placement import Owners, Placement
from psengine.protocol.instructions import TreePlace
from psengine.tables.node_tree import parents


class TreeLayout:
    """The tree for the present owners of the partitions."""

    def __init__(self) -> None:
        self._number = 0
        self._key: tuple[Owners, Mapping[str, str]] | None = None
        #: {name: (address of the parent, addresses of the children)}
        self._places: dict[str, tuple[str, tuple[str, ...]]] = {}

    def lay_out(self, placement: Placement, ready: Mapping[str, NodeRecord]) -> None:
        """Lay the tree out for the owners among the `ready` nodes, by name; nothing changes if they are the same."""
        addresses = {name: node.address for name, node in ready.items()}
        if (placement.owner, addresses) == self._key:
            return
        self._number, self._key = self._number + 1, (placement.owner, addresses)
        found = parents([owner if owner in ready else None for owner in placement.owner])
        children: dict[str, list[str]] = {}
        for node, parent in found.items():
            if parent is not None:
                children.setdefault(parent, []).append(addresses[node])
        self._places = {
            node: ("" if parent is None else addresses[parent], tuple(children.get(node, ())))
            for node, parent in found.items()
        }

    def place(self, name: str, patience_s: float) -> TreePlace | None:
        """Return the place of a node; None if there is no other one."""
        parent, children = self._places.get(name, ("", ()))
        return TreePlace(self._number, parent, children, patience_s) if parent or children else None
