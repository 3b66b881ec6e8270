"""The trainee's update: measured on accelerators, and beside TRL's on CPUs."""
