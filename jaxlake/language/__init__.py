"""Boards as prompts, answers as plans, and the reward of an answer."""
