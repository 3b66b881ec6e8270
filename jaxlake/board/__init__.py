"""Boards: their representation, symbols, rules and plan verification."""
