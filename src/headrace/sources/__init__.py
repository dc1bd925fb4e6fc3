"""Where changes come from: the contract is in ``base``; each system has a package."""
