"""How long a bid lives: survival curves by market, state and bid delta, and how well they foretell later months.

Every model is one array, `survival[market, state, delta, horizon]`, with the rule that says which state a market is in
now. Pure: prices come as `TraceSet`, nothing here reads a file.

    protocol     what a model answers; β, medians and the paper's table from any of them
    curves       the array, its horizons, and the look-up, for Python and for compiled loops
    model        `CurveModel`, the one implementation, and its record (what a file holds)
    states       what is known of a market now, as a number
    waiting      how long each bid lived in a price history, and shares of those that still live
    price        the models `table` and `survival`
    conditioned  the model `conditioned`
    capacity     the model `capacity`: advisor bands, availability traces
    calibration  predicted against observed, Brier scores
    summary      a model in figures, for whoever looks at it
"""
