"""The neural eviction predictors; the only package that imports JAX, and only for training.

network_training  training by Optax's AdamW, compiled as one loop; the only module that imports JAX
networks          the LSTM and the dense layers, over NumPy or JAX arrays alike
revpred           RevPred: history through an LSTM, the present record through dense layers, corrected for class shares
tributary         Tributary's predictor: all records with the limit through one LSTM
"""
