"""A Ray cluster of two nodes on loopback, in a process of its own: ``python cluster.py`` prints where it is.

A line on stdin ends it; so does the end of stdin, however the test ends.
"""

import json
import os
import sys


def main() -> None:
    os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0")
    from ray.cluster_utils import Cluster

    cluster = Cluster()
    cluster.add_node(node_ip_address="127.0.0.1", num_cpus=1, include_dashboard=False)
    second = cluster.add_node(node_ip_address="127.0.0.1", num_cpus=1)
    raylet = second.all_processes["raylet"][0].process.pid
    print(json.dumps({"address": cluster.address, "raylet": raylet}), flush=True)
    for line in sys.stdin:
        if line.strip() != "node":
            break
        cluster.add_node(node_ip_address="127.0.0.1", num_cpus=1)
        print("{}", flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main()
