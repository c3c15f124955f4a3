"""Plans: cost and end of a job, estimated by simulation before it is bought.

job              the planned job for the simulator: work, cluster, reliable machines, window
outlook          cost and duration of a scheme over the simulated jobs, and the choice of a scheme
output           a plan as JSON and as a picture
planner          simulation of a planned job from many starts on the price history
reliable_counts  effect of fewer or more reliable machines
runnable         whether the job can run under a scheme
spec             the request of a plan: the job, its limits, the price files
"""
