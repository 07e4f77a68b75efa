"""`perdure lint`: finds in the source of workflows what a replay would not do again. It imports none of that source."""
