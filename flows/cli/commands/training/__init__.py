"""Train a model and use it.

predict  the verb `proteus predict`
train    the verb `proteus train`
"""
