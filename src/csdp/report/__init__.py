"""What people read: certificates, figures drawn from records, HTML pages, and the files of a release."""
