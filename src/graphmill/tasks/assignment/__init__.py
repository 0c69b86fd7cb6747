"""Assignment problems: which column is each row of a matrix of costs to take, so that the sum is least?"""
