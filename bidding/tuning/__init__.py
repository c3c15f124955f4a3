"""Hyper-parameter sweeps on spot machines (SpotTune): which trial runs where, at which bid, and how far.

A trial runs on one machine. Nothing here touches the world: events go in, orders come out, as in `bidding.engine`.

    curves/      learning curves: stages, fits, predictions of the last value
    events       the engine's input: the sweep, settings, reports of trials, decision points
    orders       the engine's output: deploy, pause, release, finish
    plan         `SweepPlan`: what a sweep's decisions depend on
    simulation/  a whole sweep over recorded prices, by the same state machine
    space        search space: parameters of four kinds, their grid, seeded draws
    stopping/    stopping rules: which trials go on, and to which step, by the name that users type
    trials       a trial as the engine holds it: state, curve, deployments

Source: SpotTune (ICDCS 2020), section III. Differences are noted where they are made.
"""
