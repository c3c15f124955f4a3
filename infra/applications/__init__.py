"""The user's application on its way to the nodes, and the models it leaves.

code_files         a user's application as a file: read, and refused where it could not run on a node
code_shipping      a user's application on its way to the nodes: one file in the blob store, its digest told by
everybody who has it
prediction_inputs  new data for a model that was trained: read as those that it was trained on, in the numbers
that it knows them by
trained_models     trained models: written with what one must know to use them, and loaded again by whoever has
the URL
"""
