"""Ways of finding the highest load that a device forwards, one a file."""
