"""Jobs over a simulated market on this machine: checks, servers, pauses.

pause            pause of interrupted jobs, from which the same jobs resume
run_checks       checks of a run before anything is started, bought or written
run_environment  the private environment of a run: market file, servers, environment variables
standing         the market and the servers of `proteus up`
"""
