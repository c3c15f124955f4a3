"""Benchmark `nets`: nets by DiLoCo on the engine beside bare DiLoCo, and beside synchronous training.

characters     a character-level transformer, small enough for minutes on two cores
kills          steps that are run again while nodes are killed
nets           the parts of the benchmark
overhead       seconds of a clock beyond its local steps, and the bytes that travel
quality        held-out loss at equal samples, beside one process with the batch of all workers
same           parameters after twenty clocks beside bare DiLoCo in one process
waiting        a net whose steps take a given time, and compute nothing
"""
