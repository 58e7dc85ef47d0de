"""Texts that name layouts: format tags and role letters, and patterns."""
