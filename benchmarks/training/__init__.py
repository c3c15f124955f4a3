"""Benchmarks of training on two nodes.

bare_processes      an application's kernel in two processes of one thread each, without any engine: what nobody
                    with two cores can beat
engine              the engine beside its own kernel: `mlr` on the digits, bulk synchronous, on two nodes of one
                    thread each
generated_examples  labelled examples of the size and kind of hand-written digits: many inputs that go together,
                    classes that overlap
through_engine      a job through the engine for a benchmark: one controller, one reliable and one transient
                    node of one thread each
train               two nodes of one thread each beside the library that one would take on one machine, with two
                    threads, on the same data
train_lda           `lda` beside tomotopy: two threads each, the same documents, priors and number of topics, to
                    the same likelihood
train_lda_engine    topics through the engine, beside tomotopy (see `train_lda`)
train_mf            matrix factorisation beside libmf: the seconds that two threads need to the same held-out
                    error, on the same ratings
train_mf_engine     matrix factorisation through the engine, beside libmf (see `train_mf`)
train_mlr           multinomial logistic regression through the engine, beside the best of scikit-learn's
                    solvers with two threads
"""
