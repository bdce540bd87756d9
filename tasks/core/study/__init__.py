"""Studies: several methods, several training seeds, the tables and the page that compare them."""
