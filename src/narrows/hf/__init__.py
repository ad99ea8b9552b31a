"""The shell that makes a family a transformers model: base class, registration, strict conversion."""
