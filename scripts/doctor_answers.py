"""Write the answers of `pteron doctor`'s built-in set: src/pteron/tools/doctor/answers.npz. Needs PyTorch."""

from pteron.tools.doctor.answers import FILE, write
from pteron.tools.doctor.cases import built_in

write(built_in())
print(f"{FILE}: {FILE.stat().st_size:,} bytes")
