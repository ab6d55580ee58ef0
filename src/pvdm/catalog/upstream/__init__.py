"""Tables of upstream catalogs, served and committed to through this one."""
