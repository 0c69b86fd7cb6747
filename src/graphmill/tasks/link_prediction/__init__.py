"""Link prediction: which pairs of nodes are joined, and by what?"""
