"""The demonstration on flights: pages to look at, or a service that publishes while one looks on."""
