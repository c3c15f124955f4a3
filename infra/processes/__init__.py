"""What all our processes have in common.

surroundings  their environment, without what a user's shell, home and working directory would change in it
"""
