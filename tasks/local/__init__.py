"""Runs on this machine.

application_check  check of an application in two processes: `proteus check`
checks             checks of a run before anything is started, bought or written
environment        the private environment of a run: market file, servers, environment variables
event_log          events of one node or shard of a finished run
node_events        script of joins, notices, kills and drains of nodes
pause              pause of interrupted jobs, from which the same jobs resume
run_files          files of a local training: its options, its node events, its figures
standing           the market and the servers of `proteus up`
training           one training job on local nodes, without market or Prefect
"""
