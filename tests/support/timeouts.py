"""How long a test waits before it says that something does not happen. Waiting shows nothing, and hurts nobody."""

#: Limits are written for a machine that does nothing else. One on which other tests run, or a slow one, is given this
#: many times as long.
PATIENCE = 4.0
