"""The command `proteus`.

commands/         the verbs of the command, in the groups of its help
main              the command `proteus`
options           the options that say how spot machines are charged, alike for every verb that asks
training_options  what a user says of an application on the command line: its name, the file that holds it, its
parameters
"""
