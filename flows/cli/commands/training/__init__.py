"""Train a model and use it.

predict  the verb `proteus predict`
run      the verb `proteus run`
train    the verb `proteus train`
"""
