"""Completions from the policy: what a sampler is, and the engines that are one."""
