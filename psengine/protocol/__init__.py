"""The values that the controller, the shell and the nodes exchange.

events        what the controller hears
instructions  what the controller wants done
"""
