"""Scores proposals without training: five behaviours, expected learnability, replay."""
