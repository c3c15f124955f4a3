"""Terminal output of the verbs.

availability_view  output of `backtest --availability-set`: schemes with deadlines, and goals
backtest_view     output of `backtest`: table of schemes, event log of one job
bill_view         output of `bill`: one bill by hours, or a table of bills
evictions_view    output of `evictions show` and `evictions check`
interrupts        signals: the first raises `Interrupted`, the second ends the process
market_view       output of `market`: what is known of each market
output            JSON and text results to files or standard output; notes on standard error
plan_view         output of `plan`: schemes, markets, recommendation
progress_bar      progress bar on standard error
run_view          output of `run`: live screen or plain lines, table of the result
standard_streams  standard output and error that may be closed, full or of another encoding
sweep_lines       output of `sweep`: head and table of trials, live or once
tables            tables that fit the terminal without cutting an id or a figure
traces_view       output of `traces describe`: markets and statistics of their prices
train_view        output of `train`: live screen or plain lines, table of the result
"""
