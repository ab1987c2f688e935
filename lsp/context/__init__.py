"""What the model is shown of other files than the one at the cursor.

what happens in the editor -> a step, in a pause       other_files
 -> the files that matter to the document at hand      neighbours, imports, counterparts
 -> which of their lines                               excerpts, definitions, chunks
 -> what must not be sent stays out                    exclusions, git_ignored, disk
 -> one list, changed as little as can be              listing
 -> the server reads it ahead, and then it is sent     other_files
"""
