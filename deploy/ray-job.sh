#!/usr/bin/env bash
# Submit a training to a Ray cluster that runs already, by its Jobs API:
#
#     RAY_API_SERVER_ADDRESS=http://HEAD:8265 deploy/ray-job.sh --workload FILE --run-dir DIR
#
# What follows goes to `ganger train`. The cluster's nodes must have ganger[ray] and ray[default];
# FILE and DIR are paths that its head node sees. Ctrl-C ends the log, not the job: see
# `ray job stop`, which asks for a checkpoint and waits a few seconds for it.
set -euo pipefail

: "${RAY_API_SERVER_ADDRESS:?the address of the cluster, as http://HEAD:8265}"
exec ray job submit -- ganger train --engine ray --address auto "$@"
