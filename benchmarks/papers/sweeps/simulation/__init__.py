"""A whole sweep over recorded prices, by the state machine of a live sweep.

bills             what a machine costs, and which of its steps were free
evictions         when the market takes a machine: by its price, or by capacity
generated_curves  recorded trials made up from a seed
offers            the offers of a tick: prices, bids, probabilities
outcome           states, steps, dollars and times of a simulated sweep
real_sweep        a finished sweep as the input of a simulation
record            recorded trials of an application: curves, seconds of a step, sizes of states
simulate          `SweepSimulator`: from one tick at which something can change to the next
simulated_machine  one trial on one machine, in closed form
single_spot       the paper's baseline: all trials on one kind of spot machine
sweep_prices      prices and averages at every tick
watched_steps     the steps at which a stopping rule may act while a trial runs
worst_case        what a sweep spends at most, for its decisions under a budget
"""
