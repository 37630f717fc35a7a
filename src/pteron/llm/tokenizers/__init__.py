"""One module for each kind of tokenizer file; `load.load_tokenizer` picks among them."""
