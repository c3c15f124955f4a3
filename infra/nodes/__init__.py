"""The process that a machine runs, and the client of its controller.

check_main          the process of `proteus check`: `python -m proteus_spot.infra.nodes.check_main`
controller_client   synchronous client of a job's controller: start, status, stop, drain
controller_process  the process of a job's controller: scheduler, callbacks, a checkpoint before its machine ends
cpu_kernels         which compiled kernels NumPy, BLAS and numba take: PROTEUS_CPU_KERNELS
keys                the key of a process, waited for where its job uses TLS
lease_guard         the guard of a machine: ends it when its lease has ended, or nothing trains on it any more
logged_process      the logs and the exit code of a process of this folder
main                the entry of a node's or controller's process: `python -m proteus_spot.infra.nodes.main`
malloc              glibc settings that make a process reuse freed memory
node_process        the process of a node: it joins the controller, and reports its eviction notice
open_files          the number of files, and so of connections, that a process may open
trial_main          the process of a trial's machine: `python -m proteus_spot.infra.nodes.trial_main`
"""
