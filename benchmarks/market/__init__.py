"""Benchmarks of the bidding side.

availability       benchmark `availability`: the policy `deadline` beside its bound, its speed, and the dollars of nets
backtest           benchmark `backtest`: simulated jobs per second; as a script, the published schemes on real prices
backtest_field     markets on which schemes are compared: real price files, and generated prices
backtest_workload  seconds to read a price file, to fit, and to compute the paper's full table
candidates         one decision over many candidates, of benchmark `tick`
endpoint           benchmark `endpoint`: launches beside moto's server, price history beside the bare market
generated_markets  comparison of the schemes on real prices and on generated ones of the same markets and days
net_dollars        dollars to one loss of DiLoCo under `deadline`, beside a synchronous gang that restarts
prices             benchmark `prices`: reading a price file beside pyarrow
run_picture        script that draws a run of `proteus run` from its directory
tick               benchmark `tick`: a tick that buys, late in a long job
"""
