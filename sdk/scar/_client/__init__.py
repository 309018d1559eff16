"""The client's machinery, which no user needs to import: push streams, pulls, rerouting, heartbeats."""
