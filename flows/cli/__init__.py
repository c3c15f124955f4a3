"""The command `proteus`.

commands/  the verbs of the command, in the groups of its help
main       the command `proteus`
options    options that several verbs share: the application, how spot machines are charged, where the state is, `--json`
"""
