"""Results of other tools as trials of the suite ``imported``: what each tool's output says, and how it is recorded."""
