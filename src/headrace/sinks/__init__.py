"""Where changes go: the contract is in ``base``; each system has a package."""
