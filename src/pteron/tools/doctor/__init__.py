"""Which kernels are wrong on an adapter, and which simpler route is right."""

from pteron.tools.doctor.diagnosis import doctor
from pteron.tools.doctor.report import Diagnosis, KernelCheck, Trial

__all__ = ["Diagnosis", "KernelCheck", "Trial", "doctor"]
