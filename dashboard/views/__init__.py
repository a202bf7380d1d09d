"""One module per page, and the tabs of the run page."""
