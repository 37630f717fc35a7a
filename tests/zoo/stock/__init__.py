"""Stock exports: programs as ExecuTorch's own partitioners write them, through `pteron.load`."""
