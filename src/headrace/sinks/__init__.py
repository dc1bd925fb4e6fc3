"""Where changes go: the contract in ``base``, one package a system."""
