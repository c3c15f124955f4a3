"""Backtests: request, inputs, simulated jobs, tables, report.

backtest_inputs  inputs of a backtest: prices, eviction table, reference cluster, checkpoint interval
backtest_page    the report of a backtest as an HTML page
backtest_spec    the request of a backtest; the Prefect form is drawn from it
capacity         availability traces: markets whose machines cannot be bought at all times
comparison       a backtest from its request to its result
explain          the reasons of the live engine for the decisions of a simulated job
job_runs         simulation of many jobs for each scheme, zone and length; resumable
job_story        the events of one simulated job in order: purchases, bills, renewals, evictions
phases           expected cost of work by phase of one job (the paper's Figure 6)
reliable_counts  comparison of numbers of reliable machines
result_tables    results of a backtest as JSON, CSV and text
windows          split of a price file into a window to fit on and one to evaluate on
"""
