from .request import LeasePidRequest
from .response import LeasePidResponse

__all__ = ("LeasePidRequest", "LeasePidResponse")
