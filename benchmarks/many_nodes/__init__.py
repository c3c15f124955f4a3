"""Benchmarks of many nodes on one machine.

cluster             jobs on many nodes of one machine: a process and a network namespace each, a link of a given
                    rate between them
elasticity          many transient nodes join a training at once, leave it at once with notice, and are lost at
                    once without: Fig
fork_server         a process that has everything imported that a node needs, and forks nodes: sixty-four in
                    seconds, not in minutes
layouts             what the benchmarks of many nodes compare: layouts of AgileML's tiers, and the links and
                    kernels that suit a machine
measurement         one job on many nodes, measured: what its clocks took, and how busy processors and links
                    were
network_namespaces  several machines' networks on one machine: network namespaces, each behind a link of a given
                    rate to one switch
pictures            pictures of the benchmarks of many nodes, in the manner of the paper's figures, drawn
                    without a screen
scaling             strong scaling, Fig
sleeping_app        the application of the benchmarks of many nodes: one table of float32, and a kernel that
                    waits instead of computing
stalls              how much a change of the nodes held up those who stayed
tiering             AgileML's stages beside a parameter server without tiers: the time of a clock, in Figs
"""
