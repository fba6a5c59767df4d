from .request import DescribeLeasesRequest
from .response import DescribeLeasesResponse

__all__ = ("DescribeLeasesRequest", "DescribeLeasesResponse")
