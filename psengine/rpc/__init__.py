"""Calls between processes.

cancellation       reliable cancellation of asyncio tasks
narrowing          narrowing of arrays for transfer, and the bytes that arrays take on the wire
pickled_text       values of a user's classes as text, for checkpoints
transfers          calls that move parameters, with deadlines by the measured rates
transport          protocol of calls between processes, with deadlines and retries
"""
