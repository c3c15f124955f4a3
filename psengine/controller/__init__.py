"""The controller: one state machine that receives every event and issues every instruction.

checkpoint_schedule  when the committed state is kept, so that a job whose processes are gone goes on from there
controller           the elasticity controller of AgileML and master of Litz: one door, events in, instructions
out
draining             who of those who were told to go works until when, and who may go at all
evaluation_schedule  when the model is held against the held-out data while the training goes on, and what came
of it, by clock
history              what is told of a job and decides nothing: bytes moved, changes of its nodes, what it
looked like, evaluations
invariants           what holds of a controller after every event, checked
model_saving         how often the model is gathered and saved before the training is given up for lost
recovery             what is kept of a job against losses, and how all go back to it: to the servers' copies, or
to the last checkpoint
state                the state of a controller: what it knows of one job
status               what the controller tells of itself, as JSON-able dicts
"""
