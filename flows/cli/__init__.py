"""The command `proteus`.

commands/  the verbs, grouped as in the help
main       entry point: the verbs by group, errors as one line and an exit code
options    options shared by several verbs: application, billing, prices, state, `--json`
"""
