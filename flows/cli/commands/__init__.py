"""The verbs of the command, grouped as in its help.

inspection/   verbs that show a job: `report`, `cost`, `logs`
jobs/         verbs for jobs on a Prefect server: `submit`, `jobs`, `stop`
market_data/  verbs for price files and eviction models: `traces`, `evictions`
planning/     verbs that estimate costs: `plan`, `backtest`, `bill`
sweeps/       verbs for hyper-parameter sweeps
training/     verbs that train and predict: `run`, `train`, `predict`
bench         the verb `bench`: benchmarks against a peer or a limit
"""
