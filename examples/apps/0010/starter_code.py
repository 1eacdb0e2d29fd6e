def fewest_coins(coins, amount):
