"""What people look at: sweeps as records, figures drawn from records, and a page in one file."""
