"""Readers of data formats, one a file.

csv_examples   examples in a CSV or TSV file, read by Arrow: one a line, numbers, and one column with the label
example_table  labelled examples in memory: checked, their labels numbered, a part of them held out
idx            images in IDX form, as MNIST and its kin come: one file of images, one of labels beside it
ratings_text   ratings in a text table, one a line: user, item, rating, and columns that are passed over
svmlight       examples in svmlight (libsvm) form: ``label index:value …`` a line, zeros left out; read by
scikit-learn
word_counts    texts of word counts: LDA-C (``M term:count …`` a line) and the UCI bag of words (``docID wordID
count`` a line)
"""
