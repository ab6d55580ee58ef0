"""The Steward's HTTP service: routes by subject, one table of roles, one form of errors, limits for everyone."""
