"""Hyper-parameter sweeps on spot machines (SpotTune): which trial runs where, at which bid, and how far.

A trial runs on one machine. Nothing here touches the world: events go in, orders come out, as in `bidding.engine`.

    bids         the random bid of a market and decision, from the sweep's seed
    curves/      learning curves: stages, fits, predictions of the last value
    engine       `SweepEngine`: a state machine with one entry point, `handle(event) -> orders`
    events       the engine's input: the sweep, settings, reports of trials, decision points
    journal      events and orders of a sweep as JSON records and back, and their replay
    machines     the machines of a sweep by allocation, and the markets that are left alone
    orders       the engine's output: deploy, pause, release, finish
    plan         `SweepPlan`: what a sweep's decisions depend on
    provisioning/  which machine a trial is deployed on, and when a move is worth its cost
    record       what happened in a sweep, as events leave it, and views of that
    simulation/  a whole sweep over recorded prices, by the same state machine
    space        search space: parameters of four kinds, their grid, seeded draws
    step_cost    expected cost of a step by formulas 1 and 2, and the matrix M of step times
    stopping/    stopping rules: which trials go on, and to which step, by the name that users type
    trials       a trial as the engine holds it: state, curve, deployments
    views        the state of a sweep for its result, its pages and its tables

Source: SpotTune (ICDCS 2020), section III. Differences are noted where they are made.
"""
