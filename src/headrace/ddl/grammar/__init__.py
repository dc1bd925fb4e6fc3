"""A grammar of TiDB's DDL, for the statements that Headrace runs by itself.

The grammar checks every word of a statement, and collects every name of a table, view or database. The entry point is
:mod:`~headrace.ddl.grammar.statements`. A statement that the grammar does not accept waits for a person's decision.
"""
