"""From a request's text to the ids of its prompt. Pure: no engine, no HTTP, no threads.

Imports nothing: who asks for the names of secrets' files alone needs no vocabulary with them.
"""
