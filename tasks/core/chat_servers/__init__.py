"""Models behind OpenAI-compatible servers: requests, answers, rate limits and paid answers, whoever asks."""
