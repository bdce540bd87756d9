"""Any program as an agent: it asks an OpenAI-compatible endpoint, and says at its end what it was worth."""
