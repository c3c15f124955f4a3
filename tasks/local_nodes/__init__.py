"""Nodes on this machine without a market: training, scripted node events, a check in two processes.

event_script       scripts of joins, notices, kills and drains of a local training, read and carried out
explanations       events of one node or shard of a finished run
local_nodes        the nodes of one job as local processes, without a market
node_training      one training job on local nodes, without market or Prefect
run_files          files of a local training: its options, its node events, its figures
two_process_check  check of an application in two processes: `proteus check`
"""
