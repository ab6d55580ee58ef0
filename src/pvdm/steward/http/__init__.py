"""The Steward's HTTP service: its routes, the roles that may call each route, error responses, and limits."""
