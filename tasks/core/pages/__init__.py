"""Parts of HTML pages that the report and a study's page share."""
