"""Verbs for hyper-parameter sweeps, `proteus sweep …`.

local         the verb `local`: a sweep on this machine, without a market
report_sweep  the verb `report`: the HTML report of a sweep
run_sweep     the verb `run`: a whole sweep on a simulated market
show          the verb `show`: a sweep and its trials, once or live
stop_sweep    the verb `stop`: the end of a sweep
submit_sweep  the verb `submit`: a sweep to the Prefect server
sweep         the group of these verbs
"""
