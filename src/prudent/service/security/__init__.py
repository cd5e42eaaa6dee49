"""Who may do what, how much and how often; and which addresses and folders a request may name."""
