"""Where machines come from: this computer, hosts one can log in to, EC2."""
