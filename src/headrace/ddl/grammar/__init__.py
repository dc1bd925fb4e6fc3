"""A grammar of TiDB's DDL, for the statements that Headrace runs by itself. It checks every word and collects every name.

The entry point is :mod:`~headrace.ddl.grammar.statements`. A statement that the grammar does not accept waits for a person's
decision.
"""
