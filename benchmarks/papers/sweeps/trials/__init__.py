"""The applications that SpotTune was measured on, as trial files that a user could write, each with its grid of 16.

The modules; each has its sweep's file beside it, and mlr.yaml tunes the engine's own `mlr`:

    boosted_trees        gradient-boosted regression trees, by round
    convolutional        a small convolutional network on digits
    linear_regression    linear regression by stochastic gradient descent
    logistic_regression  logistic regression by stochastic gradient descent
    residual             a residual network on generated images, whose learning rate is cut
    svm                  support vector machines, linear and with a kernel, on digits
"""
