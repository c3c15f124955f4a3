"""Benchmarks of training on two nodes.

bare_processes      the upper limit: an application's kernel in two processes without the engine
bare_rotation       a bare loop over an application whose driver rotates blocks
engine              benchmark `engine`: a clock of `mlr` beside the bare kernel
generated_examples  generated labelled examples, similar to hand-written digits
through_engine      runs a job on a controller and two nodes of one thread each
train               benchmark `train`: `mlr`, `mf`, `lda` through the engine beside libraries with two threads
train_lda           benchmark `train-lda`: the `lda` kernel beside tomotopy
train_lda_engine    `lda` through the engine beside tomotopy
train_mf            benchmark `train-mf`: the `mf` kernel beside libmf
train_mf_engine     `mf` through the engine beside libmf
train_mlr           `mlr` through the engine beside scikit-learn's solvers
"""
