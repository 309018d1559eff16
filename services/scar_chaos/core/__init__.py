"""What happens in a run, pure: the job that counts, the faults, and how a seed becomes a schedule."""
