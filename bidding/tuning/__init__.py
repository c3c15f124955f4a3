"""Hyper-parameter sweeps on spot machines (SpotTune): which trial runs where, at which bid, and how far.

A trial runs on one machine. Nothing here touches the world: events go in, orders come out, as in `bidding.engine`.

    curves/         learning curves: stages, fits, predictions of the last value
    provisioning/   which machine a trial is deployed on, at which bid, and when a move is worth its cost
    stopping/       stopping rules: which trials go on, and to which step, by the name that users type
    space           search space: parameters of four kinds, their grid, seeded draws
    sweep_engine    `SweepEngine`: a state machine with one entry point, `handle(event) -> orders`
    sweep_events    the engine's input: the sweep, settings, reports of trials, decision points
    sweep_journal   events and orders of a sweep as JSON records and back, and their replay
    sweep_orders    the engine's output: deploy, pause, release, finish
    sweep_plan      `SweepPlan`: what a sweep's decisions depend on
    sweep_progress  what machines and reports do to the trials: grants, losses, values, failures
    sweep_record    the state of a sweep, views of it, and the orders that enter it
    trials          a trial as the engine holds it: state, curve, deployments
    views           the state of a sweep for its result, its pages and its tables

Source: SpotTune (ICDCS 2020), section III. Differences are noted where they are made.
"""
