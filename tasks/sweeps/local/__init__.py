"""Sweeps on this machine alone, without a market, a database or Prefect.

folder        the folder of such a sweep: its journal and its description, and the sweep that they show
import_check  a free look at a trial's file: it is imported in a process of this machine
sweep         a sweep as processes of this machine, with its journal in a file
"""
