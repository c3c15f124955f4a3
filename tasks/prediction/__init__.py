"""What a trained model predicts for new data.

csv_tables  tables as CSV, for programs and spreadsheets
predict     what a trained model says of new data
topics      what the topics of a trained model of documents are about: the words that have most of each
"""
