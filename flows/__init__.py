"""Stories that read top to bottom: the life of a job, its ticks, its evictions."""
