"""Test suites and models for connector authors and for Headrace's own tests."""
