"""Plans: cost and end of a job, estimated by simulation before it is bought.

live_plan          the plan by what is known of the markets now, not by a price history
outlook            cost and duration of a scheme over the simulated jobs, and the choice of a scheme
plan_files         a plan as JSON and as a picture
plan_spec          the request of a plan: the job, its limits, the price files
planned_job        the planned job for the simulator: work, cluster, reliable machines, window
planner            simulation of a planned job from many starts on the price history
reliable_machines  effect of fewer or more reliable machines
"""
