# A log server on port 9092, its data in the volume /var/lib/oncelog; docs/install.md says how it is run.
# Nothing here can run Docker, so what is tested is that hadolint finds nothing, and that the steps are those of the
# smoke test (./dev smoke): a wheel is built, and installed alone beside the locked libraries.

# A minor version of Python on a release of Debian: their fixes arrive with the next build, nothing else changes.
FROM python:3.13-slim-bookworm AS build

# Which of requirements/*.txt is installed: core, columns for compiled decoding, zookeeper for several brokers.
ARG LOCK=core
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1

WORKDIR /build
RUN python -m venv /opt/oncelog
COPY requirements/ requirements/
RUN pip install --require-hashes -r requirements/build.txt \
    && /opt/oncelog/bin/pip install --only-binary=:all: --require-hashes -r "requirements/${LOCK}.txt"

COPY pyproject.toml README.md LICENSE ./
COPY src/ src/
RUN pip wheel --no-deps --no-build-isolation --wheel-dir dist . \
    && /opt/oncelog/bin/pip install --no-deps dist/oncelog-*.whl \
    && /opt/oncelog/bin/pip uninstall --yes pip


FROM python:3.13-slim-bookworm

RUN groupadd --gid 10001 oncelog \
    && useradd --uid 10001 --gid oncelog --home-dir /var/lib/oncelog --create-home --shell /usr/sbin/nologin oncelog \
    && chmod 700 /var/lib/oncelog

COPY --from=build /opt/oncelog /opt/oncelog

ENV PATH=/opt/oncelog/bin:$PATH PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /var/lib/oncelog
VOLUME /var/lib/oncelog
EXPOSE 9092

# It answers as a Kafka does, not only listens.
HEALTHCHECK --interval=30s --timeout=10s --start-period=10s --retries=3 \
    CMD ["oncelog", "topics", "list", "-b", "127.0.0.1:9092", "-m", "5"]

# What stands behind the image's name in `docker run` takes the place of CMD, `doctor` for example.
ENTRYPOINT ["oncelog"]
CMD ["serve", "--listen", "0.0.0.0:9092", "--data", "/var/lib/oncelog"]
