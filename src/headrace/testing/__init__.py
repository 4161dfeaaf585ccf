"""What a test needs in place of the world: for this project and for those who build on it.

`disk` is a disk in memory that crashes, fails and fills up by seed. Import from the modules.
"""
