"""What is known of a market, as facts with a source and an age, and what follows from them for a machine.

The modules:

    futures     futures of a job, drawn many times: what it costs and when it ends
    grants      the chance and the size of a grant, by the last answers and the time of day
    known       `MarketKnown`: all that is known of one market, for policies, commands and reports
    learning    `MarketKnown` of each market, from its facts
    rates       how fast machines of each type work, pooled from what nodes were measured to do
    rebalances  what follows from rebalance recommendations
    records     the facts themselves, and `MarketFacts`, the Protocol of a store of them
    survival    how long machines live: the hazard by age, pooled over similar markets, and losses in bursts
"""
