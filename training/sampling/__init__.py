"""Samplers: the protocol and the engines that draw completions from the policy."""
