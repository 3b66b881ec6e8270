"""The policy network and the Hugging Face folders it comes from and goes to."""
