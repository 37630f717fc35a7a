"""One module per format of tokenizer files; `load.load_tokenizer` picks one."""
