"""The way of a source into facts: its bytes, receipts and journals, one after another into the log or the quarantine."""
