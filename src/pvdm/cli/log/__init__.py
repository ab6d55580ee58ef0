"""`pvdm log`: the transparency log checked, proved and exported."""
