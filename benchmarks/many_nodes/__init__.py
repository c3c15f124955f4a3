"""Benchmarks of the controller of many nodes.

controller     benchmark `controller`: what a clock and a tick cost the controller, by the number of nodes
virtual_nodes  nodes that are messages only: they answer every instruction at once
"""
