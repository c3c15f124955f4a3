"""Applications that ship with the engine, one file each."""
