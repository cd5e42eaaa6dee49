"""What people see: answers, live displays, tables; by subject."""
