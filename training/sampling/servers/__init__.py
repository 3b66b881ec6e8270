"""vLLM servers: of the policy as a fleet, and of other models."""
