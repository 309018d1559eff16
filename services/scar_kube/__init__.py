"""A release of the chart as a person outside of the Kubernetes cluster uses it: look at it, train on it,
break it.
"""
