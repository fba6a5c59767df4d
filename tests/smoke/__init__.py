"""The wheel, installed alone by every Python that is to be had, serves, produces and consumes: `./dev smoke`."""
