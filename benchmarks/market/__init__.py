"""Benchmarks of the bidding side.

backtest           the batch simulator: how many jobs a second, and (as a script) the published schemes on real
                   prices
backtest_field     the markets that schemes are compared on: real price files, and generated ones of the same
                   markets
backtest_workload  what is asked of a backtest beside jobs a second: a price file read, a fit, and the paper's
                   whole table
endpoint           the EC2-compatible endpoint through boto3: launches beside moto's own server, price history
                   beside the bare market
generated_markets  the schemes on real prices, and on generated ones of the same markets and days: do they rank
                   alike?
prices             reading a price file, beside pyarrow's bare reading of the same file (which checks nothing
                   and sorts nothing)
run_picture        ``python -m benchmarks.market.run_picture RUN_DIRECTORY OUT.png``: draw a run of `proteus
                   run` from what it left behind
tick               a tick that buys, late in a long job, whole: the flow's own code on a journal of 600 ticks,
                   and under Prefect
"""
