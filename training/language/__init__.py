"""What the policy reads and writes: prompts, answers, and the tokenizer between them and ids."""
