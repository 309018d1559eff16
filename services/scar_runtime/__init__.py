"""The chassis that every service stands on: settings, logs, metrics, server, heartbeats, the store. It
knows no service.
"""
