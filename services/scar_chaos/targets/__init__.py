"""What is broken: processes on this machine, or a release on Kubernetes."""
