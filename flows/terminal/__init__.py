"""What is shown on a terminal.

backtest_view   what a backtest shows on a terminal: how far it is, the table, the story of one job
bill_view       how bills look to a reader
evictions_view  how eviction models and their checks look on a terminal
interrupts      signals that ask a run to end: the first one is raised in the main thread, the next one ends the
process at once
output          results for machines, on a file or on standard output; notes for their reader
plan_view       what a plan shows on a terminal: the schemes, the markets, and what to do
progress_bar    how far something is, as a bar on a terminal
run_view        what a run shows on a terminal; plain lines where there is none
standard_streams  standard output and error, also where they are closed or full
tables          tables that never cut an id or a figure: what does not fit is left out, or a row becomes a block
traces_view     what price files show on a terminal: the markets, and what their prices do
train_view      what `proteus train` shows: a moment of the training as a line or a screen, and the closing
table
"""
