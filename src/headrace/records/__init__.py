"""Record batches of format v2: read, build, check, compress, turn into columns.

Nothing here knows a file, a socket or a partition. Start at `header` for the layout, `validation`
for what a broker checks, `columns` for what a pipeline reads. Import from the modules: `columns`
needs pyarrow, the others do not.
"""
