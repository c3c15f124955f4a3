"""Training loops of libraries that have their own, as the body of a `train(trial)`; a library is imported when used.

boosting    LightGBM and XGBoost by boosting round
estimators  estimators of scikit-learn with partial_fit

Loops of PyTorch and JAX need no adapter: a trial saves `model.state_dict()`, and the leaves of a tree.
"""
