"""Matplotlib figures, drawn without a screen.

backtest   figures 1, 3, 6 and 8 to 10 of the Proteus paper, from a backtest
evictions  survival curves and reliability diagrams of eviction models
figures    shared helpers: new figures, SVG and PNG bytes
job        prices and bids, footprint, loss and dollars of a job over market time
plan       distributions of cost and finishing time of a plan, by scheme
prices     prices of markets over time
study      importance, parallel coordinates and contours of a sweep, drawn by Optuna
sweep      trials and prices, curves, parallel coordinates and dollars of a sweep
training   time per clock, loss, nodes, stage and shard servers of a training
"""
