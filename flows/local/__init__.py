"""Jobs that run entirely on one machine.

job_threads  threads of a local run: its flow, ticks, terminal
market_run   a job or a sweep over the simulated market of this machine: its environment, its flow run to the end
run          `proteus run`: one training job over that market
sweep        `proteus sweep run`: one sweep over that market
train        `proteus train`: the engine alone on local nodes
up           `proteus up`: all deployments, over a generated market, until a signal
"""
