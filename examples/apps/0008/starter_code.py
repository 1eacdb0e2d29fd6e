def sum_even(numbers):
