"""The nodes of a job by name, address and state, so that one of a thousand is found without looking at all."""

from __future__ import annotations

from collections.abc import Mapping

from proteus_spot.psengine.membership.node_record import NodeRecord

#: Number of nodes whose process is gone that are remembered, the newest ones.
GONE_REMEMBERED = 1000


class NodeIndex:
    """Nodes in the order in which they joined.

    Attributes
    ----------
    nodes : dict
        {name: node}; of those whose process is gone, the last `GONE_REMEMBERED`.
    present : dict
        {address: node} of those whose process is not gone.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, NodeRecord] = {}
        self.present: dict[str, NodeRecord] = {}
        self._numbers = 0
        self._at: dict[str, NodeRecord] = {}
        self._gone: dict[str, NodeRecord] = {}
        #: {state: {name: node}}, and the nodes of states that were asked for since the last change.
        self._by_state: dict[str, dict[str, NodeRecord]] = {}
        self._asked: dict[tuple[str, ...], list[NodeRecord]] = {}
        #: {address: the node that is or was there, None if it is remembered no more}.
        self._changed: dict[str, NodeRecord | None] = {}

    def add(self, node: NodeRecord) -> None:
        """Add a node as the newest one; it replaces one of the same name."""
        if (replaced := self.nodes.get(node.name)) is not None:
            self._remove(replaced)
        self._numbers += 1
        node.number = self._numbers
        self.nodes[node.name] = self._at[node.address] = node
        self._enter(node)
        node.watch(self._leave, self._enter)

    def in_state(self, *states: str) -> list[NodeRecord]:
        """Return the nodes in one of `states`, in the order in which they joined."""
        found = self._asked.get(states)
        if found is None:
            nodes = [node for state in states for node in self._by_state.get(state, {}).values()]
            found = self._asked[states] = sorted(nodes, key=lambda node: node.number)
        return list(found)

    def by_name(self, state: str) -> dict[str, NodeRecord]:
        """Return the nodes in one state by name, in no order; it is ours, and changes with them."""
        return self._by_state.setdefault(state, {})

    def record(self, address: str) -> NodeRecord | None:
        """Return the node whose process is, or was last, at `address`."""
        return self._at.get(address)

    @property
    def has_changed(self) -> bool:
        """Whether a node has changed since the last call of `take_changed`."""
        return bool(self._changed)

    def take_changed(self) -> Mapping[str, NodeRecord | None]:
        """Return the nodes that have changed since the last call, by address, those that joined first first.

        None stands for a node that another one of its name has replaced.
        """
        changed, self._changed = self._changed, {}
        return dict(sorted(changed.items(), key=lambda item: self._numbers + 1 if item[1] is None else item[1].number))

    def _leave(self, node: NodeRecord) -> None:
        del self._by_state[node.state][node.name]

    def _enter(self, node: NodeRecord) -> None:
        self._by_state.setdefault(node.state, {})[node.name] = node
        self._asked.clear()
        self._changed[node.address] = node
        if not node.gone:
            self.present[node.address] = node
            return
        self.present.pop(node.address, None)
        self._gone[node.name] = node
        if len(self._gone) > GONE_REMEMBERED:
            self._remove(next(iter(self._gone.values())))

    def _remove(self, node: NodeRecord) -> None:
        node.unwatch()
        self._leave(node)
        self._asked.clear()
        self._gone.pop(node.name, None)
        del self.nodes[node.name]
        if self.present.get(node.address) is node:
            del self.present[node.address]
        if self._at.get(node.address) is node:
            del self._at[node.address]
            self._changed[node.address] = None
