"""Folders and object stores: how a URL names one, what is written there, and the work place of a run."""
