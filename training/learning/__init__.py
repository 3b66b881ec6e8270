"""How weights change: supervised steps, GRPO steps, and what a step is fed."""
