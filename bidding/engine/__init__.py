"""The bidding engine: events in, orders out, and the journal that both are written to.

engine     BidBrain's engine: a state machine with one door, `handle(event) -> orders`
events     what happens to BidBrain
journal    the journal's form: events and orders as JSON objects and back, and the engine that they replay to
orders     what BidBrain orders
reconcile  what the market's facts mean for what we believed: plan, requested and observed are compared, nothing
is remembered
"""
