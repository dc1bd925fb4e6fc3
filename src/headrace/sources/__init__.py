"""Where changes come from: the contract in ``base``, one package a system."""
