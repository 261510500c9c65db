"""What all verbs share on the command line: flags, reports, rows and errors on a terminal or for machines."""
