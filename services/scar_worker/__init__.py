"""Worker: runs the user's training function in the main thread of a service process."""
