"""Errors that are the user's to mend: a message without a traceback."""


class UserError(Exception):
    """Something that came from outside is wrong: a file, a flag, a configuration, a request.

    The message names the field, the value that came and what is allowed. The command line prints
    it after `jaxlake: error: ` and exits with status 2.
    """
