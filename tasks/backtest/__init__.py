"""Backtests: options, inputs, runs, tables, the story of one job, the report.

artifacts            a backtest as a flow runs it: its progress, its table and its pictures in the Prefect UI,
its report among the blobs
capacity             backtests of markets whose machines cannot be had at all times, whatever is bid:
availability traces beside the prices
comparison           a backtest from its request to its result: inputs opened, cells run, finished ones kept,
figures gathered
explain              why a simulated job did what it did: the reasons that the live engine wrote down, which
goes through the same job
inputs               what the schemes of a backtest are compared on: prices, what was learnt from them, the
reference cluster, how often checkpoints are written
job_story            one simulated job told in order: what it bought, when and at what price, what was paid,
refunded, renewed and let go
page                 the report of a backtest: the paper's figures on cost, redrawn from what was computed, and
all figures as tables
phases               what the paper's Figure 6 draws of a job: the expected cost of work of its footprint, from
one change to the next
reliable_counts      how many reliable machines the schemes of a backtest would best hold: the same jobs with
each number, told apart
runner               many simulated jobs of each scheme, zone and length on one field; interrupted, it goes on
where it was
spec                 what a user asks of a backtest
tables               what a backtest found: for machines as JSON and CSV, for readers as rows of text
windows              which part of a price file is learnt from, and which is evaluated on
"""
