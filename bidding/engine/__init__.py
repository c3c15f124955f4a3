"""The bidding engine: events in, orders out, and the journal that both are written to.

The modules:

    allocations  an allocation as the engine holds it, with the state of each machine
    engine       `BidEngine`: a state machine with one entry point, `handle(event) -> orders`
    events       the engine's input: the job, decision points, grants, refusals, notices, ends
    holdings     what a job holds and knows, by the events so far
    journal      events and orders as JSON records and back, and replay of the records
    orders       the engine's output: acquire, renew, lapse, wait
    reconcile    comparison of the engine's state with the market's facts, as events
    snapshot     the engine's state as JSON, which saves replaying a long journal
"""
