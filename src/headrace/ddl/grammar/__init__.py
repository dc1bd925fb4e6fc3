"""The statements that Headrace runs by itself: a grammar of TiDB's DDL in which every word has its place, and every name is known.

:mod:`~headrace.ddl.grammar.statements` is its face. What it does not know runs nowhere before somebody has looked at it.
"""
