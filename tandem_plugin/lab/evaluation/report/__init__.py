"""The report: figures, tables and responses of an evaluation on one page."""
