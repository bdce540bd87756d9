"""Any model, scored as the stages score policies: its document, tables, comparison, Inspect log and MLflow run."""
