"""The agent from the controller's side: its binary and the channel to it."""
