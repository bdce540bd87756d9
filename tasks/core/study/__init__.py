"""Studies: several methods, several training seeds, and the tables and page that compare them."""
