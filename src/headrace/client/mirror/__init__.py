"""Mirroring: topics of any Kafka cluster copied into a Headrace cluster, with their offsets.

Begin with `mirror`, which puts the parts together. The source is only read.
"""
