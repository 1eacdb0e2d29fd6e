def count_vowels(text):
