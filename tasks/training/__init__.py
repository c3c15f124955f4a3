"""The training of a job: checks, submission, its controller, following it.

application_checks  what can be said of an application by what is on this machine alone, before anything is
started
code_shipping       the user's application on its way to the nodes
controller          the training itself, as the controller of a job tells of it
follow              following a job from the flow that asked for it
hints               what a training that has ended may lack, in one line for its user
inputs              the user's data, before a job is begun with them
job_config          what a user asks for and what the data turned out to be, as the engine wants to be told it
preflight           what can be known to be wrong before anything is bought or written
submit              the jobs, a line each; submitting one to the Prefect server; ending one
"""
