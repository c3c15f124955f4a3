"""Pictures, drawn by Matplotlib without a screen.

backtest   the Proteus paper's figures on cost, redrawn from a backtest: pictures as SVG, or one as PNG
evictions  pictures of eviction models: survival curves by delta, and predicted against observed shares
figures    what all pictures share: a figure without a screen, as SVG or PNG
job        the picture of a job: prices with our bids, what was held, the loss and the dollars, over one axis of
market time
plan       the picture of a plan: how cost and finishing time are distributed under each scheme
prices     pictures of prices, drawn without a screen
training   the picture of a training: time per clock, loss, nodes and stage, and who served each shard, over one
axis of time
"""
