"""Folders and object stores: their URLs, access to them, and the work place of a run."""
