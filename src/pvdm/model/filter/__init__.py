"""Filters and claims: the closed grammar of predicates, literals by type, and which values a filter lets through."""
