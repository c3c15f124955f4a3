"""A sweep under way: opened by its flow, decided on by ticks, followed to its end.

deploying      orders carried out: the purchase of a trial's machine, a pause
following      a sweep followed by its flow, with a task run for each deployment
reports        what machines have reported, as events
sweep_opening  a sweep recorded, opened, opened again, closed
sweep_tick     one tick of a sweep
trial_inputs   checks before anything is bought; code, data and packages on their way to the machines
trial_offers   what markets offer at a tick: price, limit, risk by the sweep's predictor
"""
