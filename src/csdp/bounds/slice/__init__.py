"""The slice bound: how far two pasts can pull apart the law of one present value, given all others."""
