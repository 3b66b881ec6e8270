"""Generation by vLLM, and the weights it generates with."""
