"""The command line: one file a verb, thin over the library, each imported only when it is called."""
