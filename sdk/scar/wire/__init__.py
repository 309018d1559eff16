"""What the client and the services share of the wire: messages, connections, shared memory."""
