"""The policy: a Qwen3 decoder, its tokenizer, and the text that goes in and comes out."""
