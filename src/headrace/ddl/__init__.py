"""What a DDL statement does: its kind from the text, its structure from the shapes before and after. Pure."""
