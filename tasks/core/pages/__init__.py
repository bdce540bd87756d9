"""Parts of HTML pages that the report and the page of a study share."""
