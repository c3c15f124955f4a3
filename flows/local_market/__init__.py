"""Jobs and sweeps over the simulated market of this machine.

job_threads      threads of a local run: its flow, ticks, terminal
market_run       a job or a sweep over the simulated market of this machine: its environment, its flow run to the end
standing_market  `proteus up`: all deployments, over a generated market, until a signal
sweep_run        `proteus sweep run`: one sweep over that market
training_run     `proteus run`: one training job over that market
"""
