"""Benchmark `litz`: what the evaluation of Litz shows, on this engine.

corpus              the documents on which `lda` is trained
litz                the benchmark: its parts, run one after the other
model_parallel      likelihood of `lda` by pass and by second, model- and data-parallel
over_decomposition  a clock with several executors a core
rotation            rotation of blocks through the engine, beside a bare loop
"""
