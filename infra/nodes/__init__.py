"""The process that a machine runs, and the client of its controller.

controller_client  synchronous client of a job's controller: start, status, stop, drain
main               the process of a node or of the controller: `python -m infra.nodes.main`
malloc             glibc settings that make a process reuse freed memory
"""
