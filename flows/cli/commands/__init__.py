"""The verbs of the command, grouped as in its help.

inspection/   verbs that show a job or a set-up: `report`, `cost`, `logs`, `metrics`, `doctor`
jobs/         verbs for jobs on a Prefect server: `up`, `submit`, `jobs`, `stop`, `panic`
market_data/  verbs for markets, price files and eviction models: `market`, `traces`, `catalog`, `evictions`
planning/     verbs that estimate costs: `plan`, `backtest`, `bill`
sweeps/       verbs for hyper-parameter sweeps
training/     verbs that train and predict: `run`, `train`, `check`, `predict`
"""
