"""The trainee: prompts, model, rollouts, GRPO, checkpoints, the stage loop and the command line."""
