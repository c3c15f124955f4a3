"""Benchmark `litz`: what the evaluation of Litz shows, on this engine.

corpus              the documents on which `lda` is trained
litz                the benchmark: its parts, run one after the other
memory              the memory of the nodes over the passes of `lda`
model_parallel      likelihood of `lda` by pass and by second, model- and data-parallel
over_decomposition  a clock with several executors a core
rotation            rotation of blocks through the engine, beside a bare loop
scale_in            half of the nodes are released in the middle of a job
scale_out           the nodes are doubled in the middle of a job
scaled_runs         jobs of which nodes join or go, on namespaces: what `scale_in` and `scale_out` have in common
waiting_job         a job whose kernels wait, on tables, states and input as large as those of a measured one
"""
