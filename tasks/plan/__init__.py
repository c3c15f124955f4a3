"""Plans: what a job would cost and when it would end.

job              the job of a plan in the simulator's terms: its work, its cluster, its reliable machines, how
long it is tried
outlook          what simulated jobs say of a scheme, and which scheme to take
output           a plan for machines, as JSON, and as a picture
planner          what a job would cost and when it would end: many starts of it on the prices at hand, before a
cent is spent
reliable_counts  what fewer or more reliable machines would make of a planned job
spec             what a user asks of a plan: the job, its limits, and the prices it is tried on
"""
