"""Predictions of a trained model for new data.

csv_tables   tables as CSV, for programs and spreadsheets
predictions  predictions for the rows of a data file, and their accuracy
topics       topics of a trained document model: the words with the largest share of each
"""
