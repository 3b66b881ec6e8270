"""Rollouts: draw boards, sample answers, verify and reward them."""
