"""What is really paid, beside the books: one module for each kind of work that spends money."""
