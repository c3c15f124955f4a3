"""Jobs that run entirely on one machine.

job_threads  threads of a local run: training, ticks, terminal
run          `proteus run`: the flows, called at scaled market times in one process
train        `proteus train`: the engine alone on local nodes
up           `proteus up`: all deployments, over a generated market, until a signal
"""
