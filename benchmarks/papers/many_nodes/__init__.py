"""Benchmarks of many nodes on one machine.

cluster             jobs on many nodes of one machine: a process, a network namespace and a shaped link each
elasticity          benchmark `elasticity` (Fig. 16): many nodes join, leave with notice, and are lost together
fork_server         a process with all modules imported that forks nodes in fractions of a second
layouts             layouts of AgileML's tiers that are compared, and suitable links and kernels
measurement         measurement of one job: seconds of its clocks, load of processors and links
network_namespaces  network namespaces, each behind a link of a given rate to one switch
pictures            pictures in the style of the paper's figures
scaling             benchmark `scaling` (Fig. 15): strong scaling
sleeping_app        an application with one table and a kernel that sleeps instead of computing
stalls              delays of the remaining nodes by a change of the nodes
tiering             benchmark `tiering` (Figs. 11-14): AgileML's stages beside a server without tiers
"""
