"""Rollouts: boards drawn, answers sampled, verified and rewarded."""
