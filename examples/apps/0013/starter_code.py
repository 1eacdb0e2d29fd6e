class Solution:
    def min_trips(self, weights, limit):
