"""Drivers: the part of an application that decides which micro-tasks may run (Litz, section 3)."""
