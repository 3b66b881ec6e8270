"""Commands of the training loop, one module each; `jaxlake.command_line` has the lake's."""
