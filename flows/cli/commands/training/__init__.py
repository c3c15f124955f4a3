"""Verbs that train a model and predict with it.

check    the verb `check`: checks of an application before it is trained
predict  the verb `predict`: predictions of a trained model
run      the verb `run`: a job on a simulated spot market
train    the verb `train`: the engine alone, on local nodes
"""
