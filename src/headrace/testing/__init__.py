"""What connector authors and our own tests need."""
