"""The service: readings come in over HTTP, published numbers go out; nothing raw ever does."""
