"""The bridge between editors and the server: completions over the language server protocol."""
