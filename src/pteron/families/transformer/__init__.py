"""What layers of transformers compute across families, in fewer launches."""

from pteron.families.transformer import attention_q4, fuse
