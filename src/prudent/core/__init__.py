"""What every part of Prudent speaks in: spaces, money, errors, seeds, units."""
