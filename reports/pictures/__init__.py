"""Matplotlib figures, drawn without a screen.

backtest_pictures   figures 1, 3, 6 and 8 to 10 of the Proteus paper, from a backtest
evictions_pictures  survival curves and reliability diagrams of eviction models
figures             shared helpers: new figures, SVG and PNG bytes
job_pictures        prices and bids, footprint, loss and dollars of a job over market time
plan_pictures       distributions of cost and finishing time of a plan, by scheme
prices_pictures     prices of markets over time
study               importance, parallel coordinates and contours of a sweep, drawn by Optuna
sweep_pictures      trials and prices, curves, parallel coordinates and dollars of a sweep
training_pictures   time per clock, loss, nodes, stage and shard servers of a training
"""
