"""Pipelines: a folder of SQL and Python steps over topics, queues and tables, run by Spark.

    from headrace.spark.pipelines import step

`model` has what a pipeline is and what can be wrong with it, `definition` reads one from a folder,
`running` runs it, `headrace pipeline` is the command. See docs/pipelines.md.
"""

from headrace.spark.pipelines.model import InvalidPipeline
from headrace.spark.pipelines.sink import Sink
from headrace.spark.pipelines.steps import step

__all__ = ["InvalidPipeline", "Sink", "step"]
