"""The words of the project are held to what the code does: links, code blocks, commands, tables of settings."""
