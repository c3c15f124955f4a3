"""User applications and the models they produce.

code_files         reads and checks the file of a user's application
code_shipping      ships that file to the nodes through the blob store
net_source         reads whether an application is a net, and how many workers it has
prediction_inputs  new data for a trained model, in the form of its training data
trained_models     saves and loads trained models
"""
