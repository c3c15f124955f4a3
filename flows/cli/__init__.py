"""The command `proteus`.

commands/    the verbs, grouped as in the help
job_options  options that are fields of a job, as its model describes them
main         entry point: the verbs by group, errors as one line and an exit code
options      other options shared by several verbs: prices, markets, state, `--json`
"""
