"""The policy: a decoder, its tokenizer, and the text that goes in and comes out."""
