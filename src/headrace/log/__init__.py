"""One partition on one disk, in Apache Kafka's files.

Everything reaches the disk through the port in `disk`. Import from the modules.
"""
