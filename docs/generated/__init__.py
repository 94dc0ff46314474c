"""One module for each page that is made from the code; `page()` gives its Markdown."""
