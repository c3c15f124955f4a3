"""Benchmarks of sweeps. curves/ has recorded trials of each application, as `record` writes them.

earlycurve      benchmark `earlycurve`: EarlyCurve beside SLAQ, the ranking of trials by theta, variation of step times
record          the program that records the trials of a sweep: curves and step times
recording       what it does
records         recorded trials as .npz files
revpred         benchmark `revpred`: predictors of evictions on later weeks, and their effect on the cost of a sweep
revpred_picture  its picture, as Figure 10 of the paper
revpred_scores  accuracy, F1 and Brier score of predictors on bids of later weeks
sampling        sweeps whose settings a sampler chooses among recorded ones
simulation/     a whole sweep over recorded prices, by the state machine of live sweeps
slaq            SLAQ: the fit of EarlyCurve over the whole curve, as one stage
sweep           benchmark `sweep`: what SpotTune saves on single machines and other rules, beside the paper's figures
sweep_field     markets and applications on which sweeps are compared
sweep_pictures  pictures as Figures 7 to 9 of the paper
sweep_runs      sweeps of each application from each start, as arrays
trials/         the applications that SpotTune was measured on, as trial files
"""
