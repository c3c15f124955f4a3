"""Benchmarks of sweeps. curves/ has recorded trials of each application, as `proteus sweep record` writes them.

earlycurve      benchmark `earlycurve`: EarlyCurve beside SLAQ, the ranking of trials by theta, variation of step times
revpred         benchmark `revpred`: predictors of evictions on later weeks, and their effect on the cost of a sweep
revpred_picture  its picture, as Figure 10 of the paper
revpred_scores  accuracy, F1 and Brier score of predictors on bids of later weeks
sampling        sweeps whose settings a sampler chooses among recorded ones
sweep           benchmark `sweep`: what SpotTune saves on single machines and other rules, beside the paper's figures
sweep_field     markets and applications on which sweeps are compared
sweep_pictures  pictures as Figures 7 to 9 of the paper
sweep_runs      sweeps of each application from each start, as arrays
trials/         the applications that SpotTune was measured on, as trial files
"""
