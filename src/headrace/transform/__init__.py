"""Filters and routes: pure functions over names and blocks."""
