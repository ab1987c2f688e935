"""What `suture doctor` looks at, one module a subject; each gives findings."""
