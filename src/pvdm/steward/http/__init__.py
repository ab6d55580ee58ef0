"""The Steward's HTTP service: routes by subject, one table of roles, one error envelope, limits for everyone."""
