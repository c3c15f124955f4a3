"""Benchmark `bgd`: elastic batch gradient descent beside its baselines, as Figure 1 of the paper.

bgd      the benchmark, with a verdict on each sentence that the paper's figure supports
picture  objective and AUPRC by round and by second
runs     one descent under a preemption of half of the nodes, measured round by round
splice   a generated set like the splice sites of the paper
"""
