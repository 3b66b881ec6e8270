"""The policy: a decoder, its tokenizer, prompts and answers."""
