"""What the user asks for: frozen pydantic models, YAML in, dotted overrides; and the plan it resolves to."""
