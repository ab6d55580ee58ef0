"""The paper's experiments and ours, seeded and written as JSON, and the demo's scenes. May call every room below."""
