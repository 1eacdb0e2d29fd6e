def is_palindrome(text):
