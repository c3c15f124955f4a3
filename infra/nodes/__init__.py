"""The process that a machine runs, and the client of its controller.

controller_client  the controller as tasks see it: start, look, stop, drain
main               the process that a machine runs: `python -m infra.nodes.main --job ID --blob URL --name
INSTANCE --tier reliable|transient`
malloc             memory that a process frees stays with the process: what a node asks for in one clock it asks
for again in the next
"""
