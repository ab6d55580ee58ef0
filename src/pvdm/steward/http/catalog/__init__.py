"""The routes of the Iceberg REST protocol under `/catalog`."""
