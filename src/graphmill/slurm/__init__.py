"""The Slurm client: all that calls Slurm's programs and reads what they print. It does not depend on runs.

What the rest of the package asks of it: to submit and cancel (`commands`), the states of jobs (`queue`, and `states`
for what they mean), what jobs asked for and used (`accounting`), their deadline (`deadline`), why one ends and its
requeue (`job`), the names of its hosts (`hostlist`), and what the cluster has (`configuration`).
"""
