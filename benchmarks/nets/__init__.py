"""Benchmark `nets`: nets by DiLoCo on the engine beside bare DiLoCo, and beside synchronous training.

characters     a character-level transformer, small enough for minutes on two cores
ddp            a peer: synchronous training by DistributedDataParallel, a process of it
defaults       the table from which the defaults of nets come
kills          steps that are run again while nodes are killed
large          a table of 100 M floats: a checkpoint, a replica, the end, the memory of a server
links          seconds to one held-out loss over slow links
nets           the parts of the benchmark
overhead       seconds of a clock beyond its local steps, and the bytes that travel
quality        held-out loss at equal samples, beside one process with the batch of all workers
samples        samples to one loss, as a factor of those of synchronous training, from the tables of `defaults`
same           parameters after twenty clocks beside bare DiLoCo in one process
scale          seconds of a clock on one to eight nodes
traffic        bytes of a clock by what is pushed and kept
waiting        a net whose steps take a given time, and compute nothing
"""
