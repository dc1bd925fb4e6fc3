"""Planning, net change, partitioning, the loop, and Spark."""
