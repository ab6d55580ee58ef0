"""What commands share: output, files, options, the connection to a Steward."""
