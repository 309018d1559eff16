"""The commands: their options and help. What they do is imported when one of them runs."""
