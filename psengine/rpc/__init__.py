"""Calls between processes.

cancellation  reliable cancellation of asyncio tasks
narrowing     narrowing of arrays for transfer, and the bytes that arrays take on the wire
pickled_text  values of a user's classes as text, for checkpoints
transport     calls between processes, with deadlines; how long a transfer of parameters may take
"""
