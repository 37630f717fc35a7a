"""One module for each kind of tokenizer file; `pteron.llm.tokenizer.load_tokenizer` picks among them."""
