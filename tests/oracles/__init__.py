"""Independent reference implementations (oracles), which share no code with Inlay."""
