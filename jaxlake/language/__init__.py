"""Prompts for boards, parsing of answers into plans, and rewards for answers."""
