"""The sides of a comparison, one module each: the lake and other libraries.

Each module runs in a separate process with its own Python environment, and can't be imported
elsewhere.
"""
