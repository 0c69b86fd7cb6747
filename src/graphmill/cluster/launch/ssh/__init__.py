"""Training over a list of hosts by SSH: hosts.yaml, the agent on each host, and the launcher that speaks to them."""
