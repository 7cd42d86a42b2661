"""What arrives at a cluster: jobs, where they come from, and the files that hold them."""

from ganger.workload.arrivals import draw_job_list
from ganger.workload.model import (
    Durations,
    Job,
    PerTask,
    Pool,
    Stage,
    Wave,
    Waves,
    Workload,
    task_estimate_s,
    topological_order,
    work_s,
)
from ganger.workload.native import read_jobs, read_workload, write_jobs, write_workload
from ganger.workload.sources import (
    FileSource,
    JobSource,
    Split,
    SyntheticSource,
    TpchSource,
    job_list_workload,
    load_source,
    random_workload,
    template_users,
    template_weights,
)
from ganger.workload.synthetic import SyntheticConfig, synthetic_stages

__all__ = [
    "Durations",
    "FileSource",
    "Job",
    "JobSource",
    "PerTask",
    "Pool",
    "Split",
    "Stage",
    "SyntheticConfig",
    "SyntheticSource",
    "TpchSource",
    "Wave",
    "Waves",
    "Workload",
    "draw_job_list",
    "job_list_workload",
    "load_source",
    "random_workload",
    "read_jobs",
    "read_workload",
    "synthetic_stages",
    "task_estimate_s",
    "template_users",
    "template_weights",
    "topological_order",
    "work_s",
    "write_jobs",
    "write_workload",
]
