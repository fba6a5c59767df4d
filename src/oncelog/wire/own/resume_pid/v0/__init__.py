from .request import ResumePidRequest
from .response import ResumePidResponse

__all__ = ("ResumePidRequest", "ResumePidResponse")
